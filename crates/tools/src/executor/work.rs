//! What a call's own task does: judge, ask, execute. Recipes; who may begin when is the machine's business.

use std::path::Path;
use std::sync::Arc;

use convoke_adk::StopReason;
use serde_json::{Map, Value};

use super::{SchedulerOptions, prepare, told};
use crate::approval::options as approval_options;
use crate::policy::{Decision, Judgement, LastingOffer, PolicyCall, SaveError, ToolFacts};
use crate::{
    ApprovalOutcome, ApprovalRequest, DeclarativeTool, ErrorType, ExecutionContext, HookCall, HookResult, Invocation,
    Reach, TailCall, ToolFailure, ToolOutput, Truncated, WritingCall,
};

/// What came out of a call's task.
pub(super) enum Done {
    Judged(Box<Judged>),
    /// The answer, and for one that was to be saved, what came of that.
    Asked(ApprovalOutcome, Option<Result<(), String>>),
    Executed(Box<Executed>),
}

/// Which task it was, for one that gives nothing because it panicked.
#[derive(Clone, Copy)]
pub(super) enum Phase {
    Judge,
    Ask,
    Execute,
}

/// A call that is to be judged.
pub(super) struct Candidate {
    pub(super) call: HookCall,
    pub(super) tool: Arc<dyn DeclarativeTool>,
    /// `None` when the arguments changed since the last one was built.
    pub(super) invocation: Option<Arc<dyn Invocation>>,
}

pub(super) struct Judged {
    /// The arguments, where a hook rewrote them.
    pub(super) args: Option<Value>,
    /// The invocation to run; set unless it is denied.
    pub(super) invocation: Option<Arc<dyn Invocation>>,
    pub(super) verdict: JudgedVerdict,
}

pub(super) enum JudgedVerdict {
    Allow,
    Ask(Box<Question>),
    Deny(ToolFailure, Option<StopReason>),
}

#[derive(Clone)]
pub(super) struct Question {
    pub(super) request: ApprovalRequest,
    pub(super) lasting: Vec<LastingOffer>,
}

/// Hooks, then policy on what the hooks made of it, then what a person would need to see.
pub(super) async fn judge(options: SchedulerOptions, candidate: Candidate) -> Judged {
    let Candidate { mut call, tool, invocation } = candidate;
    let before = options.hooks.before_tool(&call).await;
    let deny = |args, failure, stop| Judged { args, invocation: None, verdict: JudgedVerdict::Deny(failure, stop) };
    if let Some(stop) = before.stop {
        let failure = ToolFailure::new(ErrorType::StopExecution, stop.message.as_str());
        return deny(None, failure, Some(stop));
    }
    if let Some(reason) = before.deny {
        let message = format!("Tool execution blocked: {reason}");
        return deny(None, ToolFailure::new(ErrorType::PolicyViolation, message), None);
    }
    let rewritten = before.rewrite.filter(|args| *args != call.args);
    let as_written = rewritten.as_ref().map(|_| as_written(&options, tool.as_ref(), &call.args, invocation.as_deref()));
    if let Some(args) = &rewritten {
        call.args = args.clone();
    }
    let built = match invocation {
        Some(invocation) if rewritten.is_none() => Ok(invocation),
        Some(_) | None => prepare::build(tool.as_ref(), &call.args),
    };
    let invocation = match built {
        Ok(invocation) => invocation,
        Err(failure) => return deny(rewritten, failure, None),
    };
    let locations = invocation.locations();
    let touches: Vec<&Path> = locations.iter().map(|location| Path::new(&location.path)).collect();
    let annotations = tool.annotations();
    let policy_call = policy_call(&options, tool.as_ref(), &annotations, &call.args, &touches);
    let mut judgement = options.policy.judge(&policy_call);
    if let Some(before) = as_written {
        let why = before.message.unwrap_or_else(|| AS_WRITTEN.to_owned());
        judgement.tighten(before.decision, &before.source, Some(why));
    }
    let asked = before.ask.or_else(|| invocation.demand());
    if let Some(reason) = &asked {
        judgement.tighten(Decision::Ask, "a hook or the tool", Some(reason.clone()));
    }
    if judgement.decision != Decision::Deny {
        let checkers = options.policy.checkers(&policy_call);
        options.checkers.ask(&checkers, &policy_call, &mut judgement).await;
    }
    // Where there is nobody to ask, asking means refusing, whoever wants to ask.
    if judgement.decision == Decision::Ask && !options.policy.interactive() {
        judgement.decision = Decision::Deny;
    }
    let (decision, source) = (judgement.decision, judgement.source.as_str());
    tracing::debug!(tool = tool.name(), call_id = call.call_id, ?decision, source, "judged a call");
    let asked = asked.or(judgement.message.clone().filter(|_| decision == Decision::Ask));
    let verdict = match decision {
        Decision::Allow => JudgedVerdict::Allow,
        // Its question is the question; only a reason of somebody else's needs one of its own.
        Decision::Ask if tool.asks_itself() && asked.is_none() => JudgedVerdict::Allow,
        Decision::Deny => JudgedVerdict::Deny(denied(judgement.message), None),
        Decision::Ask => match question(&options, &call, tool.as_ref(), invocation.as_ref(), asked).await {
            Ok(question) => JudgedVerdict::Ask(Box::new(question)),
            Err(failure) => JudgedVerdict::Deny(failure, None),
        },
    };
    Judged { args: rewritten, invocation: Some(invocation), verdict }
}

/// Why a call is asked about or refused that would pass as a hook rewrote it.
const AS_WRITTEN: &str = "A hook changed its arguments; as it was written, the call does not pass.";

/// What policy says of a call before a hook rewrote it: a hook moves decisions towards refusing, so what is refused or
/// asked about stays so, whatever is made of it.
fn as_written(
    options: &SchedulerOptions,
    tool: &dyn DeclarativeTool,
    args: &Value,
    invocation: Option<&dyn Invocation>,
) -> Judgement {
    let built = match invocation {
        Some(_) => None,
        None => prepare::build(tool, args).ok(),
    };
    let locations = invocation.or(built.as_deref()).map(Invocation::locations).unwrap_or_default();
    let touches: Vec<&Path> = locations.iter().map(|location| Path::new(&location.path)).collect();
    options.policy.judge(&policy_call(options, tool, &tool.annotations(), args, &touches))
}

/// A call as policy sees it.
fn policy_call<'a>(
    options: &'a SchedulerOptions,
    tool: &'a dyn DeclarativeTool,
    annotations: &'a Map<String, Value>,
    args: &'a Value,
    touches: &'a [&'a Path],
) -> PolicyCall<'a> {
    let tool = ToolFacts {
        name: tool.name(),
        mcp_server: tool.mcp_server(),
        mcp_tool: tool.origin().map(|origin| origin.tool.as_str()),
        annotations: Some(annotations),
        subagent: options.subagent.as_deref(),
    };
    PolicyCall { tool, args, touches }
}

fn denied(message: Option<String>) -> ToolFailure {
    let text = "Tool execution denied by policy.";
    let text = message.map_or_else(|| text.to_owned(), |message| format!("{text} {message}"));
    ToolFailure::new(ErrorType::PolicyViolation, text)
}

async fn question(
    options: &SchedulerOptions,
    call: &HookCall,
    tool: &dyn DeclarativeTool,
    invocation: &dyn Invocation,
    reason: Option<String>,
) -> Result<Question, ToolFailure> {
    let details = invocation.confirmation().await?;
    // Who wants a question about this call will want the next one too: a lasting answer would be a false promise.
    let lasting = match reason {
        None => options.policy.lasting(&policy_call(options, tool, &tool.annotations(), &call.args, &[])),
        Some(_) => Vec::new(),
    };
    let options = approval_options(&details, &lasting);
    let request = ApprovalRequest {
        call_id: call.call_id.clone(),
        tool: tool.name().to_owned(),
        title: invocation.description(),
        kind: tool.kind(),
        details,
        locations: invocation.locations(),
        args: call.args.clone(),
        reason,
        options,
    };
    Ok(Question { request, lasting })
}

/// Asks a person, and saves an answer that is to outlive the session.
pub(super) async fn ask(options: SchedulerOptions, question: Question) -> Done {
    let Question { request, lasting } = question;
    let outcome = options.approver.request(request).await;
    let ApprovalOutcome::ProceedAlways(id) = outcome else { return Done::Asked(outcome, None) };
    let Some(offer) = lasting.into_iter().find(|offer| offer.id == id && offer.save) else {
        return Done::Asked(outcome, None);
    };
    let policy = options.policy.clone();
    let saved = tokio::task::spawn_blocking(move || policy.save(&offer.always).map(|_| ()).map_err(chain)).await;
    Done::Asked(outcome, Some(saved.unwrap_or_else(|error| Err(error.to_string()))))
}

fn chain(error: SaveError) -> String {
    let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
    format!("{error}{source}")
}

/// How an execution came back.
pub(super) struct Executed {
    pub(super) result: Result<ToolOutput, ToolFailure>,
    pub(super) output_file: Option<String>,
    pub(super) tail_call: Option<TailCall>,
    pub(super) stop: Option<StopReason>,
}

/// Runs the call between the two words to whoever keeps what calls change.
async fn watched(
    options: &SchedulerOptions,
    call: &HookCall,
    reach: Reach,
    invocation: &dyn Invocation,
    cx: &ExecutionContext,
) -> Result<ToolOutput, ToolFailure> {
    let files = match reach {
        Reach::Nothing => return invocation.execute(cx).await,
        Reach::Locations => Some(invocation.locations().into_iter().map(|location| location.path.into()).collect()),
        Reach::Anything => None,
    };
    let what = invocation.description();
    let ticket = options.watch.before(WritingCall { tool: call.tool.clone(), what, files }).await;
    let result = invocation.execute(cx).await;
    options.watch.after(ticket).await;
    result
}

/// Runs the call, cuts what is too large, and lets the hooks have their say.
pub(super) async fn execute(
    options: SchedulerOptions,
    call: HookCall,
    truncates: bool,
    reach: Reach,
    invocation: Arc<dyn Invocation>,
    cx: ExecutionContext,
) -> Executed {
    let mut result = watched(&options, &call, reach, invocation.as_ref(), &cx).await;
    let mut output_file = None;
    if truncates {
        let text = match &mut result {
            Ok(output) => &mut output.text,
            Err(ToolFailure::Error { message, .. } | ToolFailure::Cancelled { message, .. }) => message,
        };
        let before = text.len();
        let Truncated { text: cut, file } =
            options.truncation.apply(&call.tool, &call.call_id, std::mem::take(text)).await;
        if cut.len() != before {
            told::truncated(&call.tool, before, cut.len(), options.truncation.threshold);
        }
        *text = cut;
        output_file = file;
    }
    let heard = HookResult {
        text: match &result {
            Ok(output) => output.text.clone(),
            Err(failure) => failure.message().to_owned(),
        },
        error_type: result.as_ref().err().and_then(ToolFailure::error_type),
    };
    let after = options.hooks.after_tool(&call, &heard).await;
    if let Some(reason) = &after.deny {
        // Whatever else there was of it, pictures and diffs included, is hidden with it.
        let blocked = format!("Tool result blocked: {reason}");
        match &mut result {
            Err(ToolFailure::Cancelled { message, .. }) => *message = blocked,
            Ok(_) | Err(ToolFailure::Error { .. }) => {
                result = Err(ToolFailure::new(ErrorType::ExecutionFailed, blocked));
            }
        }
        output_file = None;
    }
    let text = match &mut result {
        Ok(output) => &mut output.text,
        Err(ToolFailure::Error { message, .. } | ToolFailure::Cancelled { message, .. }) => message,
    };
    if let Some(replacement) = after.replace {
        *text = replacement;
    }
    if let Some(more) = after.append {
        text.push_str("\n\n");
        text.push_str(&more);
    }
    let own = result.as_mut().ok().and_then(|output| output.tail_call.take());
    Executed { result, output_file, tail_call: after.tail_call.or(own), stop: after.stop }
}
