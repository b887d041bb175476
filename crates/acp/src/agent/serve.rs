//! One connection with one client: its pipes, its methods, its end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol as sdk;
use convoke_protocol::{SessionFactory, SessionId};
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender};
use sdk::v1::schema;
use sdk::{RawJsonRpcMessage, TransportFrame};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::lines::{Line, Lines};
use crate::rpc_error::{INTERNAL, INVALID_PARAMS, INVALID_REQUEST, RpcError};
use crate::wire::{self, Open};

use super::content;
use super::desk::{Desk, Incoming};
use super::outbox::{Client, Credits, Outbox, UPDATE};
use super::session::Command;

/// Requests and notifications on their way to their session. A client that sends more at once is told to wait.
const INCOMING_MAX: usize = 1024;

/// The longest line of a client: a prompt with some images in base64.
const LINE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How long the end waits for a client that may have stopped reading.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// Why a connection could not be served to its end.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The client's messages can't be read.
    #[error("read from the client")]
    Read(#[source] io::Error),
    /// A message is longer than any honest one.
    #[error("read from the client: a line of more than {LINE_BYTES_MAX} bytes")]
    LineTooLong,
    /// The protocol's machinery failed.
    #[error("serve the client: {0}")]
    Broken(RpcError),
}

/// Serves sessions of `factory` to the ACP client on stdin and stdout.
///
/// Ends like [`serve`]. A read of stdin can't be interrupted: after `shutdown`, end the process or shut the runtime down
/// in the background.
pub async fn serve_stdio(factory: Arc<dyn SessionFactory>, shutdown: CancellationToken) -> Result<(), ServeError> {
    serve(factory, tokio::io::stdin(), tokio::io::stdout(), shutdown).await
}

/// Serves sessions of `factory` to the ACP client that writes `input` and reads `output`, one JSON-RPC message a line.
///
/// Returns once the client closed `input`, stopped reading `output`, or `shutdown` is cancelled, and all sessions are
/// closed: running turns are aborted, open questions answered as cancelled. Source: ACP v1; runtime specification §17.
pub async fn serve(
    factory: Arc<dyn SessionFactory>,
    input: impl AsyncRead + Unpin + Send + 'static,
    output: impl AsyncWrite + Unpin + Send + 'static,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let (ours, theirs) = sdk::Channel::duplex();
    let credits = Credits::new();
    let open = Arc::new(Open::default());
    let stop = shutdown.child_token();
    let over = stop.clone();
    let mut pipes = JoinSet::new();
    pipes.spawn(read(input, ours.tx, Arc::clone(&open), stop.clone()));
    pipes.spawn(write(ours.rx, output, open, credits.clone(), stop.clone()));
    let (incoming, requests) = mpsc::channel(INCOMING_MAX);
    let served = connection(Arc::clone(&factory), incoming)
        .connect_with(theirs, async move |client: Client| {
            let outbox = Outbox::new(client, credits);
            Desk::new(factory, outbox).run(requests, stop).await;
            Ok(())
        })
        .await;
    let mut result = served.map_err(|error| ServeError::Broken(error.into()));
    over.cancel();
    // The last answers go out, if the client takes them.
    let flushed = tokio::time::timeout(FLUSH_MAX, async {
        while let Some(ended) = pipes.join_next().await {
            match ended {
                Ok(Err(error)) => result = Err(error),
                Ok(Ok(())) => {}
                Err(error) => result = Err(ServeError::Broken(RpcError::new(INTERNAL, error.to_string()))),
            }
        }
    });
    if flushed.await.is_err() {
        tracing::debug!("the client does not read; what was left for it is lost");
    }
    result
}

/// Reads the client's messages until it closes the pipe or `stop`; either way the end is near.
async fn read(
    input: impl AsyncRead + Unpin,
    to_sdk: UnboundedSender<TransportFrame>,
    open: Arc<Open>,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let _stop = stop.clone().drop_guard();
    let mut lines = Lines::new(input, LINE_BYTES_MAX);
    loop {
        let line = tokio::select! {
            line = lines.next() => line,
            () = stop.cancelled() => return Ok(()),
        };
        let line = match line {
            Ok(Line::Bytes(line)) => line,
            Ok(Line::End) => return Ok(()),
            Ok(Line::TooLong) => return Err(ServeError::LineTooLong),
            Err(error) => return Err(ServeError::Read(error)),
        };
        if line.trim_ascii().is_empty() {
            continue;
        }
        let frame = TransportFrame::parse_json(&String::from_utf8_lossy(&line));
        let welcome = match &frame {
            TransportFrame::Single(message) => tokio::select! {
                welcome = open.incoming(message) => welcome,
                () = stop.cancelled() => return Ok(()),
            },
            // The SDK answers it.
            _ => true,
        };
        if welcome && to_sdk.unbounded_send(frame).is_err() {
            return Ok(());
        }
    }
}

async fn write(
    frames: UnboundedReceiver<TransportFrame>,
    output: impl AsyncWrite + Unpin,
    open: Arc<Open>,
    credits: Credits,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let _stop = stop.drop_guard();
    let frames = frames.inspect(|frame| {
        if let TransportFrame::Single(message) = frame {
            open.outgoing(message);
        }
    });
    let written = |frame: &TransportFrame| {
        if let TransportFrame::Single(RawJsonRpcMessage::Notification(notification)) = frame
            && &*notification.method == UPDATE
        {
            credits.give_back();
        }
    };
    // A client that stopped reading is a client that left.
    let _ = wire::write_frames(frames, output, written).await;
    credits.close();
    Ok(())
}

/// The SDK's side: every request is typed and passed on; nothing is awaited in its handlers.
fn connection(
    factory: Arc<dyn SessionFactory>,
    incoming: mpsc::Sender<Incoming>,
) -> sdk::v1::Builder<sdk::Agent, impl sdk::HandleDispatchFrom<sdk::Client>> {
    let [new, prompt, mode, close, cancel] = [(); 5].map(|()| incoming.clone());
    sdk::Agent
        .v1()
        .name("convoke")
        .on_receive_request(
            async move |_: schema::InitializeRequest, responder: sdk::v1::Responder<_>, _: Client| {
                responder.respond(introduction(&*factory))
            },
            sdk::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: schema::AuthenticateRequest, responder: sdk::v1::Responder<_>, _: Client| {
                let _: &sdk::v1::Responder<schema::AuthenticateResponse> = &responder;
                let message = format!(
                    "there is no authentication method \"{}\": this agent reads its credential from its environment \
                     and settings",
                    request.method_id.0
                );
                responder.respond_with_error(RpcError::new(INVALID_PARAMS, message).into())
            },
            sdk::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: schema::NewSessionRequest, responder: sdk::v1::Responder<_>, _: Client| {
                let _: &sdk::v1::Responder<schema::NewSessionResponse> = &responder;
                pass(&new, Incoming::New(request, responder.erase_to_json()))
            },
            sdk::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: schema::PromptRequest, responder: sdk::v1::Responder<_>, _: Client| {
                let _: &sdk::v1::Responder<schema::PromptResponse> = &responder;
                let command = Command::Prompt(content::parts(request.prompt), responder.erase_to_json());
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
            async move |request: schema::CloseSessionRequest, responder: sdk::v1::Responder<_>, _: Client| {
                let _: &sdk::v1::Responder<schema::CloseSessionResponse> = &responder;
                let command = Command::Close(responder.erase_to_json());
                pass(&close, Incoming::To(session_id(&request.session_id), command))
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
    let sessions = schema::SessionCapabilities::new().close(schema::SessionCloseCapabilities::new());
    let prompts = schema::PromptCapabilities::new().embedded_context(true);
    schema::InitializeResponse::new(sdk::schema::ProtocolVersion::V1)
        .agent_info(schema::Implementation::new(about.name, about.version).title(about.title))
        .agent_capabilities(
            schema::AgentCapabilities::new().prompt_capabilities(prompts).session_capabilities(sessions),
        )
}
