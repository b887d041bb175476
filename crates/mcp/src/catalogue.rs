//! What does a server offer? Its lists, page by page, within bounds.

use rmcp::model::{
    ListPromptsResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams, ServerCapabilities,
};
use rmcp::service::{Peer, RoleClient, ServiceError};
use serde_json::Value;

use crate::schema;

/// Pages of one list: a server whose cursor leads round in a circle ends here.
const PAGES_MAX: usize = 64;
/// Tools of one server; a request takes no more than a thousand of all.
pub(crate) const TOOLS_MAX: usize = 512;
/// Prompts of one server: each is a command that a person picks from.
const PROMPTS_MAX: usize = 256;
/// Resources of one server.
const RESOURCES_MAX: usize = 2048;
/// The longest description that a model is shown.
const DESCRIPTION_MAX: usize = 8 * 1024;
/// The longest name of anything.
const NAME_MAX: usize = 512;

/// What a server offers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Catalogue {
    pub(crate) tools: Vec<ToolInfo>,
    pub(crate) prompts: Vec<PromptInfo>,
    pub(crate) resources: Vec<ResourceInfo>,
    /// There are more tools than are taken.
    pub(crate) too_many_tools: bool,
}

/// A tool as its server describes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToolInfo {
    pub(crate) name: String,
    pub(crate) title: Option<String>,
    pub(crate) description: String,
    pub(crate) schema: Value,
    pub(crate) annotations: Annotations,
}

/// What a server says about a tool's effects. A hint: it may only ever make things stricter, unless the server is
/// trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// It changes nothing.
    pub read_only: Option<bool>,
    /// It may destroy.
    pub destructive: Option<bool>,
    /// Doing it twice is doing it once.
    pub idempotent: Option<bool>,
    /// It reaches out to the world.
    pub open_world: Option<bool>,
}

/// A prompt of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptInfo {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// What it takes.
    pub arguments: Vec<PromptArgument>,
}

/// An argument of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptArgument {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Whether the prompt needs it.
    pub required: bool,
}

/// A resource of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceInfo {
    /// Where it is, in the server's terms.
    pub uri: String,
    /// Its name.
    pub name: String,
    /// What it is.
    pub description: Option<String>,
    /// Its type.
    pub mime_type: Option<String>,
}

fn cut(text: String, max: usize) -> String {
    if text.len() <= max { text } else { convoke_stdx::cut::head(&text, max).to_owned() }
}

/// One page of a list: entries, and where the next page begins.
type Page<T> = (Vec<T>, Option<String>);

async fn pages<T, F>(
    max: usize,
    what: &str,
    ask: impl Fn(Option<PaginatedRequestParams>) -> F,
) -> Result<(Vec<T>, bool), ServiceError>
where
    F: Future<Output = Result<Page<T>, ServiceError>>,
{
    let (mut all, mut cursor, mut open) = (Vec::new(), None, false);
    for _ in 0..PAGES_MAX {
        let asked = cursor.take().map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
        let (page, next) = ask(asked).await?;
        all.extend(page);
        open = next.is_some();
        match next {
            Some(next) if all.len() < max => cursor = Some(next),
            _ => break,
        }
    }
    let more = all.len() > max || cursor.is_some() || (all.len() == max && open);
    if more {
        tracing::warn!(what, max, "a server's list is too long; the rest is left out");
        all.truncate(max);
    }
    Ok((all, more))
}

/// Reads all lists that the server says it has.
pub(crate) async fn read(peer: &Peer<RoleClient>, has: &ServerCapabilities) -> Result<Catalogue, ServiceError> {
    let mut catalogue = Catalogue::default();
    if has.tools.is_some() {
        let ask = |params| async move {
            let ListToolsResult { tools, next_cursor, .. } = peer.list_tools(params).await?;
            Ok((tools, next_cursor))
        };
        let (tools, more) = pages(TOOLS_MAX, "tools", ask).await?;
        catalogue.tools = tools.into_iter().filter_map(tool).collect();
        catalogue.too_many_tools = more;
    }
    if has.prompts.is_some() {
        let ask = |params| async move {
            let ListPromptsResult { prompts, next_cursor, .. } = peer.list_prompts(params).await?;
            Ok((prompts, next_cursor))
        };
        catalogue.prompts = lenient(pages(PROMPTS_MAX, "prompts", ask).await)?.into_iter().map(prompt).collect();
    }
    if has.resources.is_some() {
        let ask = |params| async move {
            let ListResourcesResult { resources, next_cursor, .. } = peer.list_resources(params).await?;
            Ok((resources, next_cursor))
        };
        let resources = lenient(pages(RESOURCES_MAX, "resources", ask).await)?;
        catalogue.resources =
            resources.into_iter().filter(|resource| resource.uri.len() <= NAME_MAX * 4).map(resource).collect();
    }
    Ok(catalogue)
}

/// Tools are worth having where prompts or resources can't be listed.
fn lenient<T>(list: Result<(Vec<T>, bool), ServiceError>) -> Result<Vec<T>, ServiceError> {
    match list.map(|(list, _)| list) {
        Err(ServiceError::McpError(error)) => {
            tracing::debug!(%error, "a list was refused");
            Ok(Vec::new())
        }
        other => other,
    }
}

fn tool(tool: rmcp::model::Tool) -> Option<ToolInfo> {
    if tool.name.is_empty() || tool.name.len() > NAME_MAX {
        tracing::warn!(length = tool.name.len(), "a tool without a usable name is left out");
        return None;
    }
    let hints = tool.annotations.as_ref();
    Some(ToolInfo {
        title: tool.title.clone().or_else(|| hints?.title.clone()).map(|title| cut(title, NAME_MAX)),
        description: cut(tool.description.as_deref().unwrap_or_default().to_owned(), DESCRIPTION_MAX),
        schema: schema::cleaned(&tool.input_schema),
        annotations: Annotations {
            read_only: hints.and_then(|hints| hints.read_only_hint),
            destructive: hints.and_then(|hints| hints.destructive_hint),
            idempotent: hints.and_then(|hints| hints.idempotent_hint),
            open_world: hints.and_then(|hints| hints.open_world_hint),
        },
        name: tool.name.into_owned(),
    })
}

fn prompt(prompt: rmcp::model::Prompt) -> PromptInfo {
    let arguments = prompt.arguments.unwrap_or_default().into_iter().take(64);
    PromptInfo {
        name: cut(prompt.name, NAME_MAX),
        description: cut(prompt.description.or(prompt.title).unwrap_or_default(), DESCRIPTION_MAX),
        arguments: arguments
            .map(|argument| PromptArgument {
                name: cut(argument.name, NAME_MAX),
                description: cut(argument.description.unwrap_or_default(), DESCRIPTION_MAX),
                required: argument.required.unwrap_or(false),
            })
            .collect(),
    }
}

fn resource(resource: rmcp::model::Resource) -> ResourceInfo {
    ResourceInfo {
        uri: resource.uri,
        name: cut(resource.title.unwrap_or(resource.name), NAME_MAX),
        description: resource.description.map(|text| cut(text, DESCRIPTION_MAX)),
        mime_type: resource.mime_type,
    }
}
