//! What settings say about long sessions: masking, compression, loops, limits.

use std::path::PathBuf;
use std::time::Duration;

use convoke_agent::{LoopOptions, MaskingOptions, PromptLimits};
use convoke_protocol::ExitCode;

use crate::environment::Environment;
use crate::failure::Exit;
use crate::settings::Settings;

fn positive(settings: &Settings, key: &str) -> Option<u64> {
    settings.integer(key).and_then(|value| u64::try_from(value).ok())
}

/// `contextManagement.tools.outputMasking.*`.
pub(super) fn masking(settings: &Settings) -> Option<MaskingOptions> {
    let key = |name: &str| format!("contextManagement.tools.outputMasking.{name}");
    if settings.flag(&key("enabled")) == Some(false) {
        return None;
    }
    let ours = MaskingOptions::default();
    let tokens = |name: &str| positive(settings, &key(name));
    Some(MaskingOptions {
        protection_tokens: tokens("protectionThresholdTokens").unwrap_or(ours.protection_tokens),
        min_prunable_tokens: tokens("minPrunableThresholdTokens").unwrap_or(ours.min_prunable_tokens),
        protect_latest_turn: settings.flag(&key("protectLatestTurn")).unwrap_or(ours.protect_latest_turn),
    })
}

/// `model.compressionThreshold`: a part of the window, 0 for never. `experimental.stressTestProfile`: early, so that a few
/// large prompts show how a session fares that was compressed.
pub(super) fn compression(settings: &Settings) -> Result<f64, Exit> {
    // Source: runtime specification §8.
    const DEFAULT: f64 = 0.5;
    /// Some fifteen thousand tokens of the usual window.
    const STRESS: f64 = 0.015;
    match settings.number("model.compressionThreshold") {
        None if settings.flag("experimental.stressTestProfile") == Some(true) => Ok(STRESS),
        None => Ok(DEFAULT),
        Some(part) if (0.0..=1.0).contains(&part) => Ok(part),
        Some(part) => {
            let why = format!("use model.compressionThreshold {part}: choose a part of the window from 0 to 1");
            Err(Exit::because(ExitCode::Configuration, why))
        }
    }
}

/// `GEMINI_CONTEXT_TRACE_DIR`, where traces are wanted: with `GEMINI_CONTEXT_TRACE_ENABLED`, or when things are debugged.
pub(super) fn trace(debug: bool, environment: &Environment) -> Option<PathBuf> {
    let wanted = debug || environment.get("GEMINI_CONTEXT_TRACE_ENABLED") == Some("true");
    environment.path("GEMINI_CONTEXT_TRACE_DIR").filter(|_| wanted)
}

/// `model.disableLoopDetection`, `model.loopCheck`.
pub(super) fn loops(settings: &Settings) -> LoopOptions {
    let ours = LoopOptions::default();
    LoopOptions {
        enabled: settings.flag("model.disableLoopDetection") != Some(true),
        ask_model: settings.flag("model.loopCheck").unwrap_or(ours.ask_model),
    }
}

/// `model.maxTokensPerPrompt`, `model.maxSecondsPerPrompt`; -1 for no limit, as elsewhere.
pub(super) fn limits(settings: &Settings) -> PromptLimits {
    PromptLimits {
        tokens: positive(settings, "model.maxTokensPerPrompt"),
        time: positive(settings, "model.maxSecondsPerPrompt").map(Duration::from_secs),
    }
}
