//! The routes as a page for people, `docs/api.md`.

use std::fmt::Write;

use serde_json::Value;

use super::operations::{OPERATIONS, Operation, Place};
use super::{SCHEMAS, parameters};

const HEAD: &str = "\
# The daemon's routes

Made from the same table as `GET /openapi.json`; a test keeps it true. Bodies and answers are JSON unless it says
otherwise. Every route but the page's files (and `/health` on loopback) asks for `Authorization: Bearer TOKEN` and answers
401 without; a wrong `Host` or `Origin` is 403, a body over 10 MB 413, an unknown route 404 as HTML. An error is
`{error, code?, …}`: programs read `code`.
";

/// The page.
pub(super) fn page() -> String {
    let mut out = HEAD.to_owned();
    let mut tags: Vec<&str> = OPERATIONS.iter().map(|operation| operation.tag).collect();
    tags.dedup();
    for tag in tags {
        let _ = write!(out, "\n## {tag}\n");
        for operation in OPERATIONS.iter().filter(|operation| operation.tag == tag) {
            section(&mut out, operation);
        }
    }
    out.push_str("\n## Bodies\n\nA star marks what is always there.\n\n| Name | Fields |\n|---|---|\n");
    let schemas: Value = serde_json::from_str(SCHEMAS).unwrap();
    for (name, schema) in schemas.as_object().unwrap() {
        let Some(fields) = schema["properties"].as_object() else { continue };
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let field = |name: &String| format!("`{name}`{}", if required.contains(&name.as_str()) { "*" } else { "" });
        let _ = writeln!(out, "| {name} | {} |", fields.keys().map(field).collect::<Vec<_>>().join(", "));
    }
    out
}

fn section(out: &mut String, operation: &Operation) {
    let _ = write!(out, "\n### `{} {}`\n\n{}", operation.method, operation.path, operation.summary);
    if let Some(details) = operation.details {
        let _ = write!(out, " {details}");
    }
    out.push_str("\n\n");
    for parameter in parameters(operation).filter(|parameter| parameter.place != Place::Path) {
        let place = if parameter.place == Place::Header { "header" } else { "query" };
        let _ = writeln!(out, "- {place} `{}`: {}", parameter.name, parameter.says);
    }
    if let Some(body) = operation.body {
        let _ = writeln!(out, "- body: {body}");
    }
    let success = &operation.success;
    let kind = if success.media_type == "application/json" || success.media_type.is_empty() {
        String::new()
    } else {
        format!(" (`{}`)", success.media_type)
    };
    let schema = success.schema.map(|schema| format!(": {schema}")).unwrap_or_default();
    let _ = writeln!(out, "- {}{schema}{kind}", success.status);
    for (status, codes) in operation.refusals {
        let codes: Vec<String> = codes.iter().map(|code| format!("`{code}`")).collect();
        let _ = writeln!(out, "- {status} {}", codes.join(", "));
    }
}
