//! What does the daemon count, and how does a monitor read it? `GET /metrics` in the OpenMetrics text format.
//!
//! Counters are fed where things happen: requests by the service, everything else by the driver, which sees each output
//! of the bridge once. Gauges are read off at the moment of a scrape. Label values come from closed sets (routes,
//! outcomes, policies, status codes), so the number of series is bounded and no client can add one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use convoke_bridge::{Answer, AuditEvent, AuditRecord, AuditResolution, Counts, Output, Refusal};
use convoke_protocol::RequestId;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

/// The media type of the text format.
pub(crate) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// People answer within seconds or come back after lunch; five minutes is the usual time limit.
const DECISION_SECONDS: [f64; 8] = [1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 1800.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: &'static str,
    status: u16,
}

type Labelled = Family<[(&'static str, &'static str); 1], Counter>;

/// The figures of one daemon.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    permission_requests: Labelled,
    votes: Labelled,
    resolutions: Labelled,
    decision: Histogram,
    turns: Counter,
    frames: Counter,
    evictions: Counter,
    agent_starts: Counter,
    agent_exits: Counter,
    gauges: Gauges,
}

/// Read off at a scrape.
#[derive(Default)]
struct Gauges {
    sessions: Gauge,
    starting: Gauge,
    clients: Gauge,
    streams: Gauge,
    pending: Gauge,
    running: Gauge,
    waiting: Gauge,
    queued: Gauge,
    kept: Gauge,
    agent_up: Gauge,
    resident: Gauge,
    uptime: Gauge<f64, AtomicU64>,
}

/// What a scrape looks at.
pub(crate) struct Snapshot {
    pub(crate) counts: Counts,
    pub(crate) agent_up: bool,
    pub(crate) uptime: std::time::Duration,
}

impl Metrics {
    /// Figures of a daemon of this version.
    pub(crate) fn new(version: &str) -> Self {
        let metrics = Self {
            registry: Registry::with_prefix("convoke"),
            requests: Family::default(),
            permission_requests: Family::default(),
            votes: Family::default(),
            resolutions: Family::default(),
            decision: Histogram::new(DECISION_SECONDS),
            turns: Counter::default(),
            frames: Counter::default(),
            evictions: Counter::default(),
            agent_starts: Counter::default(),
            agent_exits: Counter::default(),
            gauges: Gauges::default(),
        };
        metrics.registered(version)
    }

    fn registered(mut self, version: &str) -> Self {
        let registry = &mut self.registry;
        registry.register("build", "The daemon's version", Info::new([("version", version.to_owned())]));
        registry.register("http_requests", "Answered requests by route and status", self.requests.clone());
        registry.register(
            "permission_requests",
            "Permission requests put to the clients, by policy",
            self.permission_requests.clone(),
        );
        registry.register("permission_votes", "Votes by what became of them", self.votes.clone());
        registry.register("permission_resolutions", "Permission requests by how they ended", self.resolutions.clone());
        registry.register_with_unit(
            "permission_decision",
            "Time from a permission request to its end",
            Unit::Seconds,
            self.decision.clone(),
        );
        registry.register("turns", "Turns started", self.turns.clone());
        registry.register("frames_sent", "Frames given to event streams", self.frames.clone());
        registry.register(
            "stream_evictions",
            "Event streams dropped since their client was slow",
            self.evictions.clone(),
        );
        registry.register("agent_starts", "Agents that came up", self.agent_starts.clone());
        registry.register("agent_exits", "Agents that ended", self.agent_exits.clone());
        let gauges = &self.gauges;
        for (name, help, gauge) in [
            ("sessions", "Live sessions", &gauges.sessions),
            ("sessions_starting", "Sessions being started", &gauges.starting),
            ("clients", "Registered clients, summed over sessions", &gauges.clients),
            ("event_streams", "Open event streams", &gauges.streams),
            ("permission_requests_pending", "Permission requests that wait for a decision", &gauges.pending),
            ("prompts_running", "Prompts being worked on", &gauges.running),
            ("prompts_waiting", "Prompts that wait behind a running one", &gauges.waiting),
            ("frames_queued", "Frames that wait for readers of event streams", &gauges.queued),
            ("frames_kept", "Frames that are kept for replay", &gauges.kept),
            ("agent_up", "Whether the agent for new sessions is up", &gauges.agent_up),
        ] {
            registry.register(name, help, gauge.clone());
        }
        registry.register_with_unit(
            "resident_memory",
            "Memory of the daemon's process",
            Unit::Bytes,
            gauges.resident.clone(),
        );
        registry.register_with_unit("uptime", "Time since the daemon started", Unit::Seconds, gauges.uptime.clone());
        self
    }

    /// A request was answered.
    pub(crate) fn request(&self, route: &'static str, status: u16) {
        self.requests.get_or_create(&RequestLabels { route, status }).inc();
    }

    pub(crate) fn agent_started(&self) {
        self.agent_starts.inc();
    }

    pub(crate) fn agent_ended(&self) {
        self.agent_exits.inc();
    }

    /// The text of a scrape.
    pub(crate) fn render(&self, snapshot: &Snapshot) -> String {
        let gauges = &self.gauges;
        let counts = &snapshot.counts;
        for (gauge, value) in [
            (&gauges.sessions, counts.sessions),
            (&gauges.starting, counts.starting),
            (&gauges.clients, counts.clients),
            (&gauges.streams, counts.subscribers),
            (&gauges.pending, counts.pending_permissions),
            (&gauges.running, counts.active_prompts),
            (&gauges.waiting, counts.waiting_prompts),
            (&gauges.queued, counts.queued_frames),
            (&gauges.kept, counts.kept_frames),
            (&gauges.agent_up, usize::from(snapshot.agent_up)),
        ] {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
        if let Some(bytes) = resident_bytes() {
            gauges.resident.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
        gauges.uptime.set(snapshot.uptime.as_secs_f64());
        let mut text = String::new();
        // Writing into a string can't fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// The driver's part: counts what the bridge wants done.
pub(crate) struct Tally {
    metrics: Arc<Metrics>,
    /// When each pending request was issued; as many as the bridge has pending, which bounds them.
    issued: BTreeMap<RequestId, u64>,
}

impl Tally {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, issued: BTreeMap::new() }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// An output of the bridge, before it is carried out.
    pub(crate) fn output(&mut self, output: &Output) {
        let metrics = &self.metrics;
        match output {
            Output::Send { .. } => drop(metrics.frames.inc()),
            Output::Evict { .. } => drop(metrics.evictions.inc()),
            Output::StartTurn { .. } => drop(metrics.turns.inc()),
            Output::Audit(record) => self.audited(record),
            Output::Answer { answer, .. } => self.answered(answer),
            _ => {}
        }
    }

    /// Votes that are not audited: whoever sends them can't decide anything.
    fn answered(&self, answer: &Result<Answer, Refusal>) {
        let outcome = match answer {
            Err(Refusal::AlreadyResolved { .. }) => "already_resolved",
            Err(Refusal::RequestNotFound { .. }) => "unknown_request",
            Err(Refusal::InvalidOption { .. }) => "invalid_option",
            Ok(_) | Err(_) => return,
        };
        self.metrics.votes.get_or_create(&[("outcome", outcome)]).inc();
    }

    fn audited(&mut self, record: &AuditRecord) {
        let metrics = &self.metrics;
        match &record.event {
            AuditEvent::Requested { .. } => {
                metrics.permission_requests.get_or_create(&[("policy", record.policy)]).inc();
                self.issued.insert(record.request_id.clone(), record.recorded_at_ms);
            }
            AuditEvent::Voted { outcome, .. } => drop(metrics.votes.get_or_create(&[("outcome", *outcome)]).inc()),
            AuditEvent::Forbidden { reason, .. } => drop(metrics.votes.get_or_create(&[("outcome", *reason)]).inc()),
            AuditEvent::Resolved { resolution, .. } => {
                let resolution = match resolution {
                    AuditResolution::Option { .. } => "option",
                    AuditResolution::Cancelled { reason } => reason,
                };
                metrics.resolutions.get_or_create(&[("resolution", resolution)]).inc();
                if let Some(issued) = self.issued.remove(&record.request_id) {
                    let waited = std::time::Duration::from_millis(record.recorded_at_ms.saturating_sub(issued));
                    metrics.decision.observe(waited.as_secs_f64());
                }
            }
            // A timeout has its resolution, too; what was not asked is a fault of the agent and in the log.
            AuditEvent::NotAsked { .. } | AuditEvent::Timeout { .. } => {}
        }
    }
}

/// Resident memory of this process, from `/proc/self/status`.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrape_ends_as_the_format_demands_and_names_everything_once() {
        let metrics = Metrics::new("1.2.3");
        metrics.request("GET /health", 200);
        metrics.request("GET /health", 200);
        let snapshot = Snapshot {
            counts: Counts { sessions: 3, ..Counts::default() },
            agent_up: true,
            uptime: std::time::Duration::from_millis(1500),
        };
        let text = metrics.render(&snapshot);
        for line in [
            "convoke_build_info{version=\"1.2.3\"} 1",
            "convoke_http_requests_total{route=\"GET /health\",status=\"200\"} 2",
            "convoke_sessions 3",
            "convoke_agent_up 1",
            "convoke_uptime_seconds 1.5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        let mut types: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let all = types.len();
        types.dedup();
        assert_eq!(types.len(), all);
    }
}
