//! The server: what the SDK's own types say, in the age that it is told to be of.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, DiscoverResult, ErrorCode, ErrorData,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Resource, ResourceContents,
    ServerCapabilities, ServerConfig, SubscriptionFilter, Tool,
};
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ServerHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::sync::watch;

const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const PAGE: usize = 100;
const MANY: usize = 600;
const FEW: usize = 20;

/// Which generation of the protocol it speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    Newest,
    First,
}

impl Age {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Newest => "newest",
            Self::First => "first",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        [Self::Newest, Self::First].into_iter().find(|age| age.name() == name)
    }

    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::Newest => "2026-07-28",
            Self::First => "2024-11-05",
        }
    }
}

#[derive(Clone)]
pub(crate) struct SdkServer {
    age: Age,
    grown: Arc<watch::Sender<bool>>,
    cancelled: Arc<AtomicUsize>,
    /// A server of the first age is greeted, and only then asked.
    greeted: Arc<AtomicBool>,
}

impl SdkServer {
    pub(crate) fn new(age: Age) -> Self {
        Self { age, grown: Arc::new(watch::Sender::new(true)), cancelled: Arc::default(), greeted: Arc::default() }
    }

    fn tools(&self) -> Vec<Tool> {
        let object = |value: Value| value.as_object().cloned().unwrap_or_default();
        let own = ["echo", "speaks", "picture", "refuse", "hang", "cancelled", "grow", "shrink", "crash"];
        let plain = own.map(|name| Tool::new(name, format!("Does {name}."), object(json!({"type": "object"}))));
        let node = json!({"type": "object", "properties": {"child": {"$ref": "#/$defs/node"}}});
        let round =
            json!({"type": "object", "properties": {"tree": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}});
        let tree = Tool::new("tree", "Goes round.", object(round));
        let more = if *self.grown.borrow() { MANY } else { FEW };
        let more = (0..more).map(|n| Tool::new(format!("tool_{n}"), "One of many.", object(json!({"type": "object"}))));
        plain.into_iter().chain([tree]).chain(more).collect()
    }
}

impl ServerHandler for SdkServer {
    fn get_info(&self) -> ServerConfig {
        let able = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().enable_resources();
        ServerConfig::new(able.build())
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        match self.age {
            Age::Newest => Cow::Borrowed(&[ProtocolVersion::V_2026_07_28]),
            Age::First => Cow::Borrowed(&[ProtocolVersion::V_2024_11_05]),
        }
    }

    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        match self.age {
            Age::Newest => {
                Ok(DiscoverResult::from_server_info(self.supported_protocol_versions().into_owned(), self.get_info()))
            }
            Age::First => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "Method not found", None)),
        }
    }

    async fn on_initialized(&self, _: rmcp::service::NotificationContext<RoleServer>) {
        self.greeted.store(true, Ordering::SeqCst);
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let from: usize =
            request.and_then(|request| request.cursor).and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
        let tools = self.tools();
        let next = (from + PAGE < tools.len()).then(|| (from + PAGE).to_string());
        let page = tools.into_iter().skip(from).take(PAGE).collect();
        let mut listed = ListToolsResult::with_all_items(page);
        listed.next_cursor = next;
        Ok(listed)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        assert!(self.age == Age::Newest || self.greeted.load(Ordering::SeqCst), "it was never greeted");
        let args = Value::Object(request.arguments.unwrap_or_default());
        let text = |text: String| CallToolResult::success(vec![ContentBlock::text(text)]);
        let result = match request.name.as_ref() {
            "echo" => text(args["text"].as_str().unwrap_or_default().to_owned()),
            "speaks" => text(cx.protocol_version().map(|version| version.as_str().to_owned()).unwrap_or_default()),
            "picture" => CallToolResult::success(vec![ContentBlock::image(PIXEL, "image/png")]),
            "refuse" => CallToolResult::error(vec![ContentBlock::text("no such row")]),
            "tree" => text(args["tree"].to_string()),
            "cancelled" => text(self.cancelled.load(Ordering::SeqCst).to_string()),
            "hang" => {
                if let Some(token) = cx.meta.get_progress_token() {
                    let _ = cx.peer.notify_progress(ProgressNotificationParam::new(token, 1.0)).await;
                }
                cx.ct.cancelled().await;
                self.cancelled.fetch_add(1, Ordering::SeqCst);
                text("cancelled".to_owned())
            }
            name @ ("grow" | "shrink") => {
                self.grown.send_replace(name == "grow");
                if self.age == Age::First {
                    cx.peer
                        .notify_tool_list_changed()
                        .await
                        .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
                }
                text("done".to_owned())
            }
            "crash" => std::process::abort(),
            _ => text("one of many".to_owned()),
        };
        Ok(result.into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(vec![Resource::new("note://one", "one")]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(ReadResourceResult::new(vec![ResourceContents::text("written down", request.uri)]).into())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, cx: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.grown.subscribe();
        loop {
            tokio::select! {
                () = cx.cancelled() => return Ok(()),
                changed = changes.changed() => {
                    if changed.is_err() || cx.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// Serves whoever started this process, until its pipe ends.
pub(crate) async fn over_stdio(server: SdkServer) {
    let running = server.serve((tokio::io::stdin(), tokio::io::stdout())).await.unwrap();
    running.waiting().await.unwrap();
}

/// A server behind an address, until it is dropped.
pub(crate) struct Site {
    pub(crate) url: String,
    _tasks: tokio::task::JoinSet<()>,
}

pub(crate) async fn over_http(server: SdkServer) -> Site {
    let config = StreamableHttpServerConfig::default();
    let service =
        StreamableHttpService::new(move || Ok(server.clone()), Arc::new(LocalSessionManager::default()), config);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let service = service.clone();
            connections.spawn(async move {
                let answer = hyper::service::service_fn(move |request| {
                    let service = service.clone();
                    async move { Ok::<_, std::convert::Infallible>(service.handle(request).await) }
                });
                let io = hyper_util::rt::TokioIo::new(stream);
                // A client that leaves ends its connection; there is nobody to tell.
                let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, answer).await;
            });
        }
    });
    Site { url, _tasks: tasks }
}
