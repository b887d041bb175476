//! `convoke models`: what is reachable, which model would a prompt use, and why?

use std::time::Duration;

use convoke_models::{ListedModel, list_models};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::agent_host;
use crate::args::ModelsArgs;
use crate::credentials::{self, ModelChoice, NoModel};
use crate::failure::{Exit, complain, print};
use crate::providers::{Configured, Providers};
use crate::startup::Startup;

/// How long a server may take to list its models.
const DEADLINE: Duration = Duration::from_secs(3);
/// Servers that are asked at the same time.
const ASKED_AT_ONCE: usize = 16;

/// What a provider said.
enum Answer {
    Listed(Vec<ListedModel>),
    Unreachable(String),
    NotConfigured(String),
}

/// Asks every provider that the user has.
pub(crate) fn run(args: &ModelsArgs) -> Exit {
    let startup = match Startup::read(None, args.agent.skip_trust) {
        Ok(startup) => startup,
        Err(exit) => return exit,
    };
    startup.warn();
    let providers = match credentials::providers(&startup) {
        Ok(providers) => providers,
        Err(error) => return Exit::because(error.exit, error),
    };
    for warning in providers.warnings() {
        complain(&format!("warning: {warning}"));
    }
    let choice = credentials::choose(&args.agent, &startup);
    let runtime = match agent_host::runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    let answers = runtime.block_on(ask(&providers));
    if args.json {
        print(&as_json(&answers, &choice).to_string());
    } else {
        as_text(&answers, &choice).iter().for_each(|line| print(line));
    }
    match choice {
        Ok(_) => Exit::ok(),
        Err(none) => Exit::from(none.exit),
    }
}

type Asked<'a> = (&'a str, &'a Configured, Answer);

async fn ask(providers: &Providers) -> Vec<Asked<'_>> {
    let asked = providers.all().map(|(name, configured)| async move {
        let answer = match &configured.provider {
            Err(missing) => Answer::NotConfigured(missing.clone()),
            Ok(provider) => {
                // Dropped at the deadline, which ends the exchange as well.
                let never = CancellationToken::new();
                match tokio::time::timeout(DEADLINE, list_models(provider, &never)).await {
                    Ok(Ok(models)) => Answer::Listed(models),
                    Ok(Err(error)) => Answer::Unreachable(error.to_string()),
                    Err(_) => Answer::Unreachable(format!("no answer within {} s", DEADLINE.as_secs())),
                }
            }
        };
        (name, configured, answer)
    });
    futures::stream::iter(asked).buffered(ASKED_AT_ONCE).collect().await
}

/// The provider and the model's id that a prompt would use.
fn used(choice: &ModelChoice) -> (String, String) {
    let model = choice.catalog.resolve(&choice.model);
    let provider = model.provider().unwrap_or(choice.registry.default_name());
    (provider.to_owned(), model.id().to_owned())
}

/// Models that the settings name and the server does not list come first.
fn names<'a>(configured: &'a Configured, listed: &'a [ListedModel]) -> Vec<&'a str> {
    let own = configured.models.iter().map(String::as_str).filter(|id| !listed.iter().any(|model| model.id == *id));
    own.chain(listed.iter().map(|model| model.id.as_str())).collect()
}

fn as_text(answers: &[Asked<'_>], choice: &Result<ModelChoice, NoModel>) -> Vec<String> {
    let mut lines = Vec::new();
    let used = choice.as_ref().ok().map(used);
    for (name, configured, answer) in answers {
        let models = match answer {
            Answer::Listed(models) => {
                lines.push(format!("{name} ({}): {} models", configured.kind.name(), models.len()));
                names(configured, models)
            }
            Answer::Unreachable(why) => {
                lines.push(format!("{name} ({}): unreachable: {why}", configured.kind.name()));
                names(configured, &[])
            }
            Answer::NotConfigured(why) => {
                lines.push(format!("{name} ({}): not configured: {why}", configured.kind.name()));
                continue;
            }
        };
        for id in models {
            let is_used = used.as_ref().is_some_and(|(provider, model)| provider == name && model == id);
            lines.push(format!("{} {name}/{id}", if is_used { "*" } else { " " }));
        }
    }
    lines.push(String::new());
    match (choice, used) {
        (Ok(choice), Some((provider, model))) => {
            lines.push(format!("A prompt would use {provider}/{model}: {}.", choice.why));
        }
        (Err(none), _) => lines.push(format!("A prompt would use nothing: {none}")),
        (Ok(_), None) => {}
    }
    lines
}

fn as_json(answers: &[Asked<'_>], choice: &Result<ModelChoice, NoModel>) -> Value {
    let providers = answers.iter().map(|(name, configured, answer)| {
        let (status, error, listed) = match answer {
            Answer::Listed(models) => ("reachable", None, models.as_slice()),
            Answer::Unreachable(why) => ("unreachable", Some(why), [].as_slice()),
            Answer::NotConfigured(why) => ("not_configured", Some(why), [].as_slice()),
        };
        let models: Vec<Value> = names(configured, listed)
            .into_iter()
            .map(|id| {
                let on_server = listed.iter().find(|model| model.id == id);
                let name = on_server.and_then(|model| model.name.as_deref());
                json!({"id": id, "name": name, "listed": on_server.is_some()})
            })
            .collect();
        let kind = configured.kind.name();
        json!({"name": name, "type": kind, "status": status, "error": error, "models": models})
    });
    let prompt = match choice {
        Ok(choice) => {
            let (provider, model) = used(choice);
            json!({"provider": provider, "model": model, "why": choice.why})
        }
        Err(none) => json!({"error": none.to_string(), "exitCode": none.exit.code()}),
    };
    json!({"prompt": prompt, "providers": providers.collect::<Vec<_>>()})
}
