//! Paths: where does a model live?

use crate::providers::path_segment;

/// Whose models are asked for.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// The Gemini API.
    Gemini,
    /// Vertex AI, below a project and location if `parent` is not empty.
    Vertex { parent: String },
}

impl Place {
    /// `{model's name}:{method}`.
    pub(super) fn of(&self, model: &str, method: &str) -> String {
        match self {
            Self::Gemini => of(model, method),
            Self::Vertex { parent } => {
                let segments: Vec<_> = match model.split_once('/') {
                    Some(("publishers" | "endpoints", _)) => model.split('/').map(path_segment).collect(),
                    Some(("models", id)) => vec!["publishers/google/models".to_owned(), path_segment(id)],
                    _ => vec!["publishers/google/models".to_owned(), path_segment(model)],
                };
                format!("{parent}{}:{method}", segments.join("/"))
            }
        }
    }

    /// The list of models.
    pub(super) fn list(&self) -> &'static str {
        match self {
            Self::Gemini => "models?pageSize=1000",
            Self::Vertex { .. } => "publishers/google/models?pageSize=1000",
        }
    }
}

/// `models/{model}:{method}`. Names of tuned models keep their collection; what a path can't hold is escaped.
fn of(model: &str, method: &str) -> String {
    format!("{}:{method}", name(model))
}

/// The resource name of a model.
pub(super) fn name(model: &str) -> String {
    let (collection, id) = match model.split_once('/') {
        Some((collection @ ("models" | "tunedModels"), id)) => (collection, id),
        _ => ("models", model),
    };
    format!("{collection}/{}", path_segment(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        assert_eq!(of("gemini-2.5-flash", "countTokens"), "models/gemini-2.5-flash:countTokens");
        assert_eq!(of("models/x", "m"), "models/x:m");
        assert_eq!(of("tunedModels/x", "m"), "tunedModels/x:m");
        assert_eq!(of("a/../b?c#d:e", "m"), "models/a%2F..%2Fb%3Fc%23d%3Ae:m");
    }

    #[test]
    fn paths_of_vertex() {
        let of = |parent: &str, model| Place::Vertex { parent: parent.to_owned() }.of(model, "m");
        assert_eq!(of("", "gemini-2.5-pro"), "publishers/google/models/gemini-2.5-pro:m");
        assert_eq!(of("projects/p/", "models/x"), "projects/p/publishers/google/models/x:m");
        assert_eq!(of("projects/p/", "publishers/other/models/x?y"), "projects/p/publishers/other/models/x%3Fy:m");
        assert_eq!(of("projects/p/", "endpoints/7"), "projects/p/endpoints/7:m");
        assert_eq!(of("", "a/b"), "publishers/google/models/a%2Fb:m");
    }
}
