//! Our own documents, as they were when the program was built, for the agent that answers questions about it.

use convoke_agent::Document;

macro_rules! document {
    ($path:literal) => {
        Document { path: $path, text: include_str!(concat!("../../../../", $path)) }
    };
}

/// All that the repository has for users; a hundred and fifty KiB.
pub(crate) static DOCUMENTS: [Document; 16] = [
    document!("README.md"),
    document!("docs/agents.md"),
    document!("docs/api.md"),
    document!("docs/compat.md"),
    document!("docs/editors.md"),
    document!("docs/glossary.md"),
    document!("docs/headless.md"),
    document!("docs/hooks.md"),
    document!("docs/mcp.md"),
    document!("docs/models.md"),
    document!("docs/plan-mode.md"),
    document!("docs/policy.md"),
    document!("docs/rewind.md"),
    document!("docs/sandbox.md"),
    document!("docs/security.md"),
    document!("docs/telemetry.md"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_document_is_there_and_none_is_large() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let written: BTreeSet<String> =
            files.filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}")).collect();
        let here: BTreeSet<String> = DOCUMENTS.iter().map(|document| document.path.to_owned()).collect();
        assert_eq!(here.difference(&written).collect::<Vec<_>>(), ["README.md"]);
        assert_eq!(written.difference(&here).count(), 0, "{written:?}");
        // A model reads one at a time, and the binary carries all of them.
        assert!(DOCUMENTS.iter().all(|document| document.text.len() < 64 << 10));
        assert!(DOCUMENTS.iter().map(|document| document.text.len()).sum::<usize>() < 400 << 10);
    }
}
