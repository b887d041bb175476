//! Lists: which models does a server have?
//!
//! A side question for people, asked once and never repeated. The lists differ in a few names only, and are read as one.

use convoke_adk::{ModelError, ModelErrorKind};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::connect::Provider;
use crate::generator::or_cancelled;
use crate::http::{Http, parse_json};
use crate::providers::anthropic::Anthropic;
use crate::providers::gemini::Gemini;
use crate::providers::openai::OpenAi;
use crate::providers::vertex::vertex;

/// The most that a list may have in bytes. The longest known, of a router with hundreds of models, has 1 MiB.
const LIST_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The most models that are told.
const MODELS_MAX: usize = 5000;

/// A model on a server's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedModel {
    /// What a request names.
    pub id: String,
    /// What people call it, where the server says.
    pub name: Option<String>,
}

/// Asks a provider for its models, in the server's order. A script has none.
///
/// Errors: as for a call; a list that can't be read is an [`InvalidStream`](ModelErrorKind::InvalidStream).
pub async fn list_models(provider: &Provider, cancel: &CancellationToken) -> Result<Vec<ListedModel>, ModelError> {
    let failed = |error: crate::ConnectError| ModelError::new(ModelErrorKind::Other, error.to_string());
    match provider.clone() {
        Provider::Fake { .. } => Ok(Vec::new()),
        Provider::Gemini(options) => Gemini::new(options).map_err(failed)?.list(cancel).await,
        Provider::Vertex(options) => vertex(options).map_err(failed)?.list(cancel).await,
        Provider::OpenAi(options) => OpenAi::new(options).map_err(failed)?.list(cancel).await,
        Provider::Anthropic(options) => Anthropic::new(options).map_err(failed)?.list(cancel).await,
    }
}

/// Asks for the list at `path`.
pub(crate) async fn ask(http: &Http, path: &str, cancel: &CancellationToken) -> Result<Vec<ListedModel>, ModelError> {
    let text = or_cancelled(cancel, async { http.get(path).await?.bytes_up_to(LIST_BYTES_MAX).await }).await?;
    read(&parse_json(&text)?).ok_or_else(|| {
        ModelError::new(ModelErrorKind::InvalidStream, "the server's list of models has an unknown shape")
    })
}

/// `{data: [{id}]}`, `{models: [{name}]}`, `{publisherModels: [{name}]}`, or the list itself.
fn read(list: &Value) -> Option<Vec<ListedModel>> {
    let models = match list {
        Value::Array(models) => models,
        list => ["data", "models", "publisherModels"].iter().find_map(|key| list.get(*key)?.as_array())?,
    };
    Some(models.iter().filter(|model| answers(model)).filter_map(one).take(MODELS_MAX).collect())
}

/// Whether it takes prompts; only Gemini's list says.
fn answers(model: &Value) -> bool {
    let methods = model.get("supportedGenerationMethods").and_then(Value::as_array);
    methods.is_none_or(|methods| methods.iter().any(|method| method == "generateContent"))
}

fn one(model: &Value) -> Option<ListedModel> {
    let text = |key: &str| model.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let id = text("id").or_else(|| text("name")).or_else(|| model.as_str())?;
    let id = id.strip_prefix("publishers/google/").unwrap_or(id);
    let id = id.strip_prefix("models/").unwrap_or(id).to_owned();
    let name = text("display_name").or_else(|| text("displayName")).map(str::to_owned);
    Some(ListedModel { name: name.filter(|name| *name != id), id })
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use serde_json::json;

    use super::*;

    fn ids(list: Value) -> Option<Vec<String>> {
        read(&list).map(|models| models.into_iter().map(|model| model.id).collect())
    }

    #[test]
    fn lists_of_every_kind() {
        let expected = || Some(vec!["a".to_owned(), "b/c".to_owned()]);
        assert_eq!(ids(json!({"data": [{"id": "a"}, {"id": "b/c"}]})), expected());
        assert_eq!(ids(json!({"models": [{"name": "models/a"}, {"name": "b/c"}]})), expected());
        assert_eq!(
            ids(json!({"publisherModels": [{"name": "publishers/google/models/a"}, {"name": "b/c"}]})),
            expected()
        );
        assert_eq!(ids(json!(["a", "b/c", 3, {"id": ""}])), expected());
        assert_eq!(ids(json!({"data": []})), Some(vec![]));
        for odd in [json!({}), json!({"data": 3}), json!("a"), json!(null)] {
            assert_eq!(ids(odd.clone()), None, "{odd}");
        }
    }

    #[test]
    fn models_that_take_no_prompts_are_left_out() {
        let model = |name: &str, methods: Value| json!({"name": name, "supportedGenerationMethods": methods});
        let list = json!({"models": [model("a", json!(["generateContent"])), model("e", json!(["embedContent"]))]});
        assert_eq!(ids(list), Some(vec!["a".to_owned()]));
    }

    #[test]
    fn names_for_people() {
        let list = json!({"data": [{"id": "m", "display_name": "Model"}, {"id": "n", "display_name": "n"}]});
        let names: Vec<_> = read(&list).unwrap().into_iter().map(|model| model.name).collect();
        assert_eq!(names, [Some("Model".to_owned()), None]);
    }

    #[test]
    fn a_list_is_bounded() {
        let models: Vec<_> = (0..MODELS_MAX + 10).map(|at| json!({"id": at.to_string()})).collect();
        assert_eq!(ids(json!({"data": models})).unwrap().len(), MODELS_MAX);
    }
}
