//! What did a turn cost?

use serde_json::{Value, json};

/// Tokens of a turn, by model. Source: runtime specification §17, `_meta.quota`.
#[derive(Clone, Debug, Default)]
pub(super) struct Quota {
    /// In the order of their first answers; as few as a chain has models.
    models: Vec<(String, u64, u64)>,
}

impl Quota {
    pub(super) fn add(&mut self, model: &str, input: u64, output: u64) {
        match self.models.iter_mut().find(|(name, ..)| name == model) {
            Some((_, inputs, outputs)) => {
                *inputs = inputs.saturating_add(input);
                *outputs = outputs.saturating_add(output);
            }
            None => self.models.push((model.to_owned(), input, output)),
        }
    }

    /// `None` if no model answered.
    pub(super) fn told(&self) -> Option<Value> {
        let count = |input: u64, output: u64| json!({"input_tokens": input, "output_tokens": output});
        let sum = |of: fn(&(String, u64, u64)) -> u64| self.models.iter().map(of).fold(0, u64::saturating_add);
        let usage: Vec<_> = self
            .models
            .iter()
            .map(|(model, input, output)| json!({"model": model, "token_count": count(*input, *output)}))
            .collect();
        (!usage.is_empty())
            .then(|| json!({"token_count": count(sum(|model| model.1), sum(|model| model.2)), "model_usage": usage}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_by_model_and_over_all() {
        let mut quota = Quota::default();
        assert_eq!(quota.told(), None);
        quota.add("pro", 10, 1);
        quota.add("flash", 5, 2);
        quota.add("pro", 20, 3);
        let count = |input, output| json!({"input_tokens": input, "output_tokens": output});
        let usage =
            json!([{"model": "pro", "token_count": count(30, 4)}, {"model": "flash", "token_count": count(5, 2)}]);
        assert_eq!(quota.told(), Some(json!({"token_count": count(35, 6), "model_usage": usage})));
    }
}
