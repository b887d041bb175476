use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;
use ModelErrorKind::{Auth, BadRequest, Capacity, NotFound, Other, Quota, RateLimit, Server};

fn refused(status: u16, body: &Value) -> (ModelErrorKind, Option<u64>) {
    let body = body.to_string();
    let error = classify(Refusal { status, body: body.as_bytes(), ..Refusal::default() });
    (error.kind, error.retry_after.map(|delay| delay.as_millis() as u64))
}

fn google(message: &str, details: &Value) -> Value {
    json!({"error": {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": details}})
}

fn retry_info(delay: &str) -> Value {
    json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay})
}

fn quota(id: &str) -> Value {
    json!({"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": id}]})
}

fn reason(reason: &str) -> Value {
    json!({" @type ": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "googleapis.com"})
}

#[test]
fn statuses() {
    for (status, kind) in [
        (302, Other),
        (400, BadRequest),
        (401, Auth),
        (402, Quota),
        (403, Auth),
        (404, NotFound),
        (408, Server),
        (413, BadRequest),
        (422, BadRequest),
        (429, RateLimit),
        (499, Server),
        (500, Server),
        (502, Server),
        (503, Server),
        (504, Server),
        (529, Server),
    ] {
        assert_eq!(refused(status, &json!({"error": {"message": "x"}})), (kind, None), "{status}");
    }
}

#[test]
fn google_quotas() {
    for (body, expected) in [
        (google("m", &json!([retry_info("1.5s")])), (RateLimit, Some(1500))),
        (google("m", &json!([retry_info("900ms")])), (RateLimit, Some(900))),
        (google("m", &json!([retry_info("301s")])), (Quota, Some(301_000))),
        (
            google("m", &json!([quota("GenerateRequestsPerDayPerProjectPerModel"), retry_info("2s")])),
            (Quota, Some(2000)),
        ),
        (google("m", &json!([quota("GenerateRequestsPerMinutePerProject")])), (RateLimit, Some(60_000))),
        (google("m", &json!([quota("RequestsPerMinute"), retry_info("7s")])), (RateLimit, Some(7000))),
        (google("limit: 0, model: x", &json!([])), (Quota, None)),
        (google("limit: 0.5", &json!([])), (RateLimit, None)),
        (google("Please retry in 12.5s.", &json!([])), (RateLimit, Some(12_500))),
        (google("Please retry in 400s", &json!([])), (Quota, Some(400_000))),
        (google("m", &json!([reason("MODEL_CAPACITY_EXHAUSTED")])), (Capacity, None)),
        (google("You have exhausted your capacity on this model.", &json!([])), (Capacity, None)),
        (google("m", &json!([reason("QUOTA_EXHAUSTED")])), (Quota, None)),
    ] {
        assert_eq!(refused(429, &body), expected, "{body}");
        assert_eq!(refused(429, &json!([body])), expected, "as array");
        let nested = json!({"error": {"message": body.to_string(), "code": 429}});
        assert_eq!(refused(429, &nested), expected, "nested");
    }
}

#[test]
fn openai_codes() {
    let error =
        |kind: &str, code: &str, message: &str| json!({"error": {"message": message, "type": kind, "code": code}});
    for (status, body, expected) in [
        (429, error("insufficient_quota", "insufficient_quota", "pay"), (Quota, None)),
        (429, error("tokens", "rate_limit_exceeded", "Please try again in 6.5s."), (RateLimit, Some(6500))),
        (429, error("requests", "rate_limit_exceeded", "Please try again in 1m30s. Visit"), (RateLimit, Some(90_000))),
        (401, error("invalid_request_error", "invalid_api_key", "no"), (Auth, None)),
        (404, error("invalid_request_error", "model_not_found", "no"), (NotFound, None)),
    ] {
        assert_eq!(refused(status, &body), expected, "{body}");
    }
}

#[test]
fn a_wrong_gemini_key_is_a_400() {
    let body = json!({"error": {"code": 400, "message": "API key not valid. Please pass a valid API key.",
        "status": "INVALID_ARGUMENT", "details": [reason("API_KEY_INVALID")]}});
    assert_eq!(refused(400, &body), (Auth, None));
}

#[test]
fn retry_after_header() {
    let wall_ms = 1_795_226_553_000; // Sat, 21 Nov 2026 02:02:33 GMT
    let delay = |status, header: &str, body: &[u8]| {
        let error = classify(Refusal { status, retry_after: Some(header), body, wall_ms });
        (error.kind, error.retry_after.map(|delay| delay.as_secs()))
    };
    assert_eq!(delay(429, "7", b""), (RateLimit, Some(7)));
    assert_eq!(delay(503, " 7 ", b""), (Server, Some(7)));
    assert_eq!(delay(500, "7", b""), (Server, Some(7)));
    assert_eq!(delay(429, "Sat, 21 Nov 2026 02:03:03 GMT", b""), (RateLimit, Some(30)));
    assert_eq!(delay(429, "Sat, 21 Nov 2026 02:00:00 GMT", b""), (RateLimit, Some(0)));
    assert_eq!(delay(429, "3600", b""), (Quota, Some(3600)));
    assert_eq!(delay(429, "soon", b""), (RateLimit, None));
    assert_eq!(delay(429, "-1", b""), (RateLimit, None));
    let body = google("m", &json!([retry_info("20s")])).to_string();
    assert_eq!(delay(429, "7", body.as_bytes()), (RateLimit, Some(20)), "the longer one");
}

#[test]
fn messages_are_the_servers_own() {
    let message = |body: &[u8]| classify(Refusal { status: 503, body, ..Refusal::default() }).message;
    assert_eq!(message(br#"{"error":{"message":"deep"}}"#), "deep");
    assert_eq!(message(br#"{"error":"flat"}"#), "flat");
    assert_eq!(message(br#"{"message":"bare"}"#), "bare");
    assert_eq!(message(br#"{"detail":"fast"}"#), "fast");
    assert_eq!(message(br#"{"error":{"message":"m",,"code":503}}"#), "m");
    assert_eq!(message(b" upstream connect error "), "upstream connect error");
    assert_eq!(message(b"<html>no</html>"), "HTTP 503 Service Unavailable");
    assert_eq!(message(b""), "HTTP 503 Service Unavailable");
    assert_eq!(message("é".repeat(MESSAGE_MAX).as_bytes()).len(), MESSAGE_MAX);
}

#[test]
fn errors_inside_a_stream() {
    let kind = |error: Value| classify_inline(&json!({"error": error})).kind;
    assert_eq!(kind(json!({"code": 503, "message": "m", "status": "UNAVAILABLE"})), Server);
    assert_eq!(kind(json!({"code": "rate_limit_exceeded", "message": "m"})), RateLimit);
    assert_eq!(kind(json!({"type": "invalid_request_error", "message": "m"})), BadRequest);
    assert_eq!(kind(json!({"code": null, "message": "m"})), Server);
    assert_eq!(kind(json!("boom")), Server);
}

#[test]
fn durations() {
    for (text, ms) in [("12.5s", 12_500), ("900ms", 900), ("6m0s", 360_000), ("1h", 3_600_000)] {
        assert_eq!(duration(text), Some(Duration::from_millis(ms)), "{text}");
    }
    for text in ["", "s", "5", "5x", "1e999s", "..s", "99999999999999999999999s"] {
        assert_eq!(duration(text), None, "{text}");
    }
}
