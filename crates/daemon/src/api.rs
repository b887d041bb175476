//! How does a program learn the routes? `GET /openapi.json`, made from the table of routes and what is said of each.
//!
//! ```text
//! route::TABLE ─┐
//! operations   ─┼─▶ OpenAPI 3.1 document ─▶ GET /openapi.json
//! schemas.json ─┘                        └─▶ docs/api.md, compared by a test
//! ```
//! Every route has one operation and every operation a route: tests hold both.

mod operations;
#[cfg(test)]
mod page;

use serde_json::{Map, Value, json};

use operations::{Operation, PARAMETERS, Parameter, Place};

/// The schemas of bodies and events.
const SCHEMAS: &str = include_str!("api/schemas.json");

/// The document, for a daemon of this version.
pub(crate) fn document(version: &str) -> Value {
    let mut paths = Map::new();
    for line in crate::route::TABLE {
        let Some(operation) = operations::of(line.method, line.path) else { continue };
        let path = braces(line.path);
        let item = paths.entry(path).or_insert_with(|| json!({}));
        if let Value::Object(item) = item {
            item.insert(line.method.to_ascii_lowercase(), describe(operation));
        }
    }
    // A file of this crate, which a test reads.
    let schemas: Value = serde_json::from_str(SCHEMAS).unwrap_or_default();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Convoke daemon",
            "version": version,
            "description": "Sessions of coding agents that many clients share. The wire of `qwen serve`, version 1.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas,
        },
    })
}

/// `/session/:id` as OpenAPI writes it.
fn braces(path: &str) -> String {
    let part = |part: &str| part.strip_prefix(':').map_or_else(|| part.to_owned(), |name| format!("{{{name}}}"));
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

fn describe(operation: &Operation) -> Value {
    let mut responses = Map::new();
    responses.insert(operation.success.status.to_string(), success(operation));
    for (status, codes) in operation.refusals {
        let text = if codes.is_empty() { "Refused.".to_owned() } else { format!("`code`: {}.", codes.join(", ")) };
        let content = json!({"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}});
        responses.insert(status.to_string(), json!({"description": text, "content": content}));
    }
    let parameters: Vec<Value> = parameters(operation).map(parameter).collect();
    let mut described = json!({
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "parameters": parameters,
        "responses": responses,
    });
    if let Value::Object(fields) = &mut described {
        if let Some(details) = operation.details {
            fields.insert("description".to_owned(), json!(details));
        }
        if let Some(schema) = operation.body {
            let content = json!({"application/json": {"schema": reference(schema)}});
            fields.insert("requestBody".to_owned(), json!({"content": content}));
        }
    }
    described
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

fn success(operation: &Operation) -> Value {
    let success = &operation.success;
    match success.schema {
        Some(schema) => {
            json!({"description": success.says, "content": {success.media_type: {"schema": reference(schema)}}})
        }
        None => json!({"description": success.says}),
    }
}

/// Those of its path, then what else it takes.
fn parameters(operation: &Operation) -> impl Iterator<Item = &'static Parameter> {
    let named = |name: &str| PARAMETERS.iter().find(|parameter| parameter.name == name);
    let of_path = operation.path.split('/').filter_map(|part| part.strip_prefix(':')).filter_map(named);
    of_path.chain(operation.takes.iter().filter_map(move |name| named(name)))
}

fn parameter(parameter: &Parameter) -> Value {
    json!({
        "name": parameter.name,
        "in": match parameter.place {
            Place::Path => "path",
            Place::Query => "query",
            Place::Header => "header",
        },
        "required": parameter.place == Place::Path,
        "description": parameter.says,
        "schema": {"type": parameter.kind},
    })
}

#[cfg(test)]
mod tests;
