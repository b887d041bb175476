//! The keys that mean something here. A dictionary: one line per key.

use serde_json::{Map, Value};

/// Dotted keys; everything below a key that ends in `.*` is free-form.
const KNOWN: &[&str] = &[
    "$schema",
    "agents.*",
    "context.fileFiltering.respectGeminiIgnore",
    "context.fileFiltering.respectGitIgnore",
    "context.fileName",
    "contextManagement.tools.outputMasking.enabled",
    "contextManagement.tools.outputMasking.minPrunableThresholdTokens",
    "contextManagement.tools.outputMasking.protectLatestTurn",
    "contextManagement.tools.outputMasking.protectionThresholdTokens",
    "experimental.acpV2",
    "experimental.directWebFetch",
    "experimental.enableAgents",
    "experimental.stressTestProfile",
    "general.checkpointing.enabled",
    "general.defaultApprovalMode",
    "general.maxAttempts",
    "general.plan.directory",
    "general.plan.enabled",
    "general.plan.modelRouting",
    "general.sessionRetention.enabled",
    "general.sessionRetention.maxAge",
    "general.sessionRetention.maxCount",
    "general.sessionRetention.minRetention",
    "general.topicUpdateNarration",
    "hooks.*",
    "hooksConfig.disabled",
    "hooksConfig.enabled",
    "hooksConfig.notifications",
    "mcp.allowed",
    "mcp.excluded",
    "mcp.serverCommand",
    "mcp.startupTimeout",
    "mcpServers.*",
    "model.compressionThreshold",
    "model.disableLoopDetection",
    "model.loopCheck",
    "model.maxSecondsPerPrompt",
    "model.maxSessionTurns",
    "model.maxTokensPerPrompt",
    "model.name",
    "model.routing.classifier",
    "model.routing.threshold",
    "modelConfigs.*",
    "openai.baseUrl",
    "openai.model",
    "output.format",
    "policy.*",
    "policyPaths",
    "providers.*",
    "security.auth.enforcedType",
    "security.auth.selectedType",
    "security.disableAlwaysAllow",
    "security.disableYoloMode",
    "security.environmentVariableRedaction.allowed",
    "security.environmentVariableRedaction.blocked",
    "security.environmentVariableRedaction.enabled",
    "security.enablePermanentToolApproval",
    "security.folderTrust.enabled",
    "serve.agent",
    "skills.enabled",
    "telemetry.enabled",
    "telemetry.logPrompts",
    "telemetry.otlpEndpoint",
    "telemetry.otlpProtocol",
    "telemetry.outfile",
    "telemetry.target",
    "telemetry.traces",
    "tools.allowed",
    "tools.core",
    "tools.callCommand",
    "tools.discoveryCommand",
    "tools.confirmationRequired",
    "tools.exclude",
    "tools.sandbox.*",
    "tools.sandboxAllowedPaths",
    "tools.sandboxNetworkAccess",
    "tools.shell.clientTerminal",
    "tools.shell.inactivityTimeout",
    "tools.truncateToolOutputThreshold",
    "tools.webFetch.allowedPrivateHosts",
    "useWriteTodos",
];

/// The dotted keys of `layer` that mean nothing here.
pub(super) fn unknown_keys(layer: &Map<String, Value>) -> Vec<String> {
    let mut unknown = Vec::new();
    collect("", layer, &mut unknown);
    unknown
}

fn collect(prefix: &str, map: &Map<String, Value>, unknown: &mut Vec<String>) {
    for (key, value) in map {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        let free = KNOWN.iter().any(|known| known.strip_suffix(".*").is_some_and(|stem| stem == path));
        if free || KNOWN.contains(&path.as_str()) {
            continue;
        }
        let has_children = KNOWN.iter().any(|known| known.strip_prefix(&path).is_some_and(|r| r.starts_with('.')));
        match value {
            Value::Object(inner) if has_children => collect(&path, inner, unknown),
            _ => unknown.push(path),
        }
    }
}
