use std::collections::BTreeSet;

use super::*;
use crate::route::TABLE;

#[test]
fn every_route_is_described_and_nothing_else() {
    let routes: BTreeSet<_> = TABLE.iter().map(|line| (line.path, line.method)).collect();
    let described: BTreeSet<_> =
        operations::OPERATIONS.iter().map(|operation| (operation.path, operation.method)).collect();
    assert_eq!(routes, described);
    assert_eq!(described.len(), operations::OPERATIONS.len(), "a route is described twice");
    let ids: BTreeSet<_> = operations::OPERATIONS.iter().map(|operation| operation.id).collect();
    assert_eq!(ids.len(), operations::OPERATIONS.len(), "an operation's id is taken twice");
}

#[test]
fn every_reference_leads_somewhere() {
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    match value.as_str().filter(|_| name == "$ref") {
                        Some(reference) => found.push(reference),
                        None => references(value, found),
                    }
                }
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let document = document("1");
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 40, "{found:?}");
    for reference in &found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
    let used: BTreeSet<_> = found.into_iter().filter_map(|reference| reference.rsplit('/').next()).collect();
    let unused: Vec<_> = document["components"]["schemas"]
        .as_object()
        .unwrap()
        .keys()
        .filter(|name| !used.contains(name.as_str()))
        .collect();
    assert!(unused.is_empty(), "{unused:?} are used nowhere");
}

#[test]
fn named_parameters_exist() {
    for operation in operations::OPERATIONS {
        let in_path = operation.path.split('/').filter(|part| part.starts_with(':')).count();
        assert_eq!(parameters(operation).count(), in_path + operation.takes.len(), "{}", operation.path);
    }
}

/// `CONVOKE_BLESS=1 cargo test -p convoke-daemon api` writes the page anew.
#[test]
fn the_page_in_docs_is_this_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md");
    let page = page::page();
    if std::env::var_os("CONVOKE_BLESS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(written == page, "docs/api.md is not what the table says; write it with CONVOKE_BLESS=1");
}
