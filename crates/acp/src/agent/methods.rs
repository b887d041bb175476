//! Which methods are there, and what do they carry?

use std::sync::Arc;

use agent_client_protocol as sdk;
use convoke_protocol::{Authenticator, ListSessions, SessionFactory, SessionId};
use sdk::v1::schema;
use tokio::sync::mpsc;

use crate::rpc_error::{INVALID_REQUEST, RpcError};

use super::abilities::Abilities;
use super::content;
use super::desk::{Incoming, Origin, Wanted};
use super::outbox::Client;
use super::past::GoOn;
use super::rewind::{self, Aside, BackRequest, BranchRequest, PointsRequest};
use super::session::Command;
use super::steer::{self, SteerRequest};

/// The key in `_meta` of `authenticate` with a secret. Source: runtime specification §17.
const SECRET_META: &str = "api-key";

/// The SDK's side: every request is typed and passed on; nothing is awaited in its handlers.
pub(super) fn connection(
    factory: Arc<dyn SessionFactory>,
    abilities: Abilities,
    incoming: mpsc::Sender<Incoming>,
) -> sdk::v1::Builder<sdk::Agent, impl sdk::HandleDispatchFrom<sdk::Client>> {
    let [new, prompt, mode, option, close, cancel, login, logout] = [(); 8].map(|()| incoming.clone());
    let steer = incoming.clone();
    let [points, back, branch] = [(); 3].map(|()| incoming.clone());
    let [load, resume, list, delete] = [(); 4].map(|()| incoming.clone());
    sdk::Agent
        .v1()
        .name("convoke")
        .on_receive_request(
            async move |request: schema::InitializeRequest, responder: sdk::v1::Responder<_>, _: Client| {
                abilities.learn(request.client_capabilities);
                responder.respond(introduction(&*factory))
            },
            sdk::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: schema::AuthenticateRequest, responder: sdk::v1::Responder<_>, _: Client| {
                let _: &sdk::v1::Responder<schema::AuthenticateResponse> = &responder;
                let secret = request.meta.as_ref().and_then(|meta| meta.get(SECRET_META)?.as_str());
                let incoming = Incoming::Authenticate {
                    method: request.method_id.0.to_string(),
                    secret: secret.filter(|secret| !secret.is_empty()).map(str::to_owned),
                    responder: responder.erase_to_json(),
                };
                pass(&login, incoming)
            },
            sdk::on_receive_request!(),
        )
        .on_receive_request(
            async move |_: schema::LogoutRequest, responder: sdk::v1::Responder<_>, _: Client| {
                let _: &sdk::v1::Responder<schema::LogoutResponse> = &responder;
                pass(&logout, Incoming::Logout(responder.erase_to_json()))
            },
            sdk::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: schema::NewSessionRequest, responder: sdk::v1::Responder<_>, _: Client| {
                let _: &sdk::v1::Responder<schema::NewSessionResponse> = &responder;
                let chosen = request.meta.as_ref().and_then(|meta| meta.get(crate::SESSION_ID_META)?.as_str());
                let chosen = chosen.filter(|id| !id.is_empty()).map(SessionId::from);
                let wanted = Wanted {
                    cwd: request.cwd,
                    additional_directories: request.additional_directories,
                    mcp_servers: request.mcp_servers,
                    origin: Origin::New(chosen),
                };
                pass(&new, Incoming::Open(wanted, responder.erase_to_json()))
            },
            sdk::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: schema::LoadSessionRequest, responder: sdk::v1::Responder<_>, _: Client| {
                let _: &sdk::v1::Responder<schema::LoadSessionResponse> = &responder;
                let id = session_id(&request.session_id);
                let wanted = Wanted {
                    cwd: request.cwd,
                    additional_directories: request.additional_directories,
                    mcp_servers: request.mcp_servers,
                    origin: Origin::Record(id, GoOn::Load),
                };
                pass(&load, Incoming::Open(wanted, responder.erase_to_json()))
            },
            sdk::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: schema::ResumeSessionRequest, responder: sdk::v1::Responder<_>, _: Client| {
                let _: &sdk::v1::Responder<schema::ResumeSessionResponse> = &responder;
                let id = session_id(&request.session_id);
                let wanted = Wanted {
                    cwd: request.cwd,
                    additional_directories: request.additional_directories,
                    mcp_servers: request.mcp_servers,
                    origin: Origin::Record(id, GoOn::Resume),
                };
                pass(&resume, Incoming::Open(wanted, responder.erase_to_json()))
            },
            sdk::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: schema::ListSessionsRequest, responder: sdk::v1::Responder<_>, _: Client| {
                let _: &sdk::v1::Responder<schema::ListSessionsResponse> = &responder;
                let wanted = ListSessions { cwd: request.cwd, cursor: request.cursor, limit: None };
                pass(&list, Incoming::List(wanted, responder.erase_to_json()))
            },
            sdk::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: schema::DeleteSessionRequest, responder: sdk::v1::Responder<_>, _: Client| {
                let _: &sdk::v1::Responder<schema::DeleteSessionResponse> = &responder;
                pass(&delete, Incoming::Delete(session_id(&request.session_id), responder.erase_to_json()))
            },
            sdk::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: schema::PromptRequest, responder: sdk::v1::Responder<_>, _: Client| {
                let _: &sdk::v1::Responder<schema::PromptResponse> = &responder;
                let parts = content::parts(request.prompt);
                content::check(&parts)?;
                let command = Command::Prompt(parts, responder.erase_to_json());
                pass(&prompt, Incoming::To(session_id(&request.session_id), command))
            },
            sdk::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: schema::SetSessionModeRequest, responder: sdk::v1::Responder<_>, _: Client| {
                let _: &sdk::v1::Responder<schema::SetSessionModeResponse> = &responder;
                let command = Command::SetMode(request.mode_id.0.to_string(), responder.erase_to_json());
                pass(&mode, Incoming::To(session_id(&request.session_id), command))
            },
            sdk::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: schema::SetSessionConfigOptionRequest, responder: sdk::v1::Responder<_>, _: Client| {
                let _: &sdk::v1::Responder<schema::SetSessionConfigOptionResponse> = &responder;
                let command = Command::SetOption {
                    id: request.config_id.0.to_string(),
                    value: match &request.value {
                        schema::SessionConfigOptionValue::ValueId { value } => value.0.to_string(),
                        // None of ours is one; the answer says which values there are.
                        schema::SessionConfigOptionValue::Boolean { value } => value.to_string(),
                        _ => String::new(),
                    },
                    responder: responder.erase_to_json(),
                };
                pass(&option, Incoming::To(session_id(&request.session_id), command))
            },
            sdk::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: schema::CloseSessionRequest, responder: sdk::v1::Responder<_>, _: Client| {
                let _: &sdk::v1::Responder<schema::CloseSessionResponse> = &responder;
                let command = Command::Close(responder.erase_to_json());
                pass(&close, Incoming::To(session_id(&request.session_id), command))
            },
            sdk::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: SteerRequest, responder: sdk::v1::Responder<_>, _: Client| {
                let _: &sdk::v1::Responder<serde_json::Value> = &responder;
                let command = Command::Steer(request.text, responder.erase_to_json());
                pass(&steer, Incoming::To(SessionId(request.session_id), command))
            },
            sdk::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PointsRequest, responder: sdk::v1::Responder<_>, _: Client| {
                let _: &sdk::v1::Responder<serde_json::Value> = &responder;
                let command = Command::Aside(Aside::Points, responder.erase_to_json());
                pass(&points, Incoming::To(SessionId(request.session_id), command))
            },
            sdk::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: BackRequest, responder: sdk::v1::Responder<_>, _: Client| {
                let _: &sdk::v1::Responder<serde_json::Value> = &responder;
                let BackRequest { session_id, to, what, force } = request;
                let command = Command::Aside(Aside::Rewind { to, what, force }, responder.erase_to_json());
                pass(&back, Incoming::To(SessionId(session_id), command))
            },
            sdk::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: BranchRequest, responder: sdk::v1::Responder<_>, _: Client| {
                let _: &sdk::v1::Responder<serde_json::Value> = &responder;
                let command = Command::Aside(Aside::Branch(request.at), responder.erase_to_json());
                pass(&branch, Incoming::To(SessionId(request.session_id), command))
            },
            sdk::on_receive_request!(),
        )
        .on_receive_notification(
            async move |request: schema::CancelNotification, _: Client| {
                pass(&cancel, Incoming::Cancel(session_id(&request.session_id)))
            },
            sdk::on_receive_notification!(),
        )
}

fn session_id(id: &schema::SessionId) -> SessionId {
    SessionId(id.0.to_string())
}

/// Passes a request on without waiting. One that finds no room is answered with an error.
fn pass(incoming: &mpsc::Sender<Incoming>, message: Incoming) -> sdk::Result<()> {
    let too_many = || RpcError::new(INVALID_REQUEST, "too many requests are waiting");
    incoming.try_send(message).map_err(|_| too_many().into())
}

fn introduction(factory: &dyn SessionFactory) -> schema::InitializeResponse {
    let about = factory.info();
    let recorded = factory.records().is_some();
    let sessions = schema::SessionCapabilities::new()
        .list(recorded.then(schema::SessionListCapabilities::new))
        .resume(recorded.then(schema::SessionResumeCapabilities::new))
        .delete(recorded.then(schema::SessionDeleteCapabilities::new))
        .close(schema::SessionCloseCapabilities::new())
        .additional_directories(schema::SessionAdditionalDirectoriesCapabilities::new());
    let prompts = schema::PromptCapabilities::new().embedded_context(true).image(true).audio(true);
    let ways = factory.authenticator().map(Authenticator::methods).unwrap_or_default();
    let auth = schema::AgentAuthCapabilities::new().logout((!ways.is_empty()).then(schema::LogoutCapabilities::new));
    let ways = ways.into_iter().map(|way| {
        schema::AuthMethod::Agent(schema::AuthMethodAgent::new(way.id, way.name).description(way.description))
    });
    schema::InitializeResponse::new(sdk::schema::ProtocolVersion::V1)
        .agent_info(schema::Implementation::new(about.name, about.version).title(about.title))
        .auth_methods(ways.collect::<Vec<_>>())
        .agent_capabilities(
            schema::AgentCapabilities::new()
                .meta(own_methods(recorded))
                .load_session(recorded)
                .mcp_capabilities(schema::McpCapabilities::new().http(true).sse(true))
                .prompt_capabilities(prompts)
                .session_capabilities(sessions)
                .auth(auth),
        )
}

/// Our own methods, beside those of the protocol.
fn own_methods(recorded: bool) -> schema::Meta {
    let back = if recorded { &rewind::METHODS[..] } else { &[] };
    let methods: Vec<&str> = std::iter::once(steer::METHOD).chain(back.iter().copied()).collect();
    schema::Meta::from_iter([(crate::METHODS_META.to_owned(), methods.into())])
}
