use pretty_assertions::assert_eq;

use super::*;

const KEY: &str = include_str!("../../tests/google/service-account.key.pem");

fn service(key: &str) -> Result<GoogleCredential, GoogleCredentialError> {
    let file = json!({"type": "service_account", "client_email": "bot@p.iam.gserviceaccount.com", "private_key": key,
        "private_key_id": "k1", "project_id": "p"});
    GoogleCredential::parse(&file.to_string())
}

/// The expected text was signed by `openssl dgst -sha256 -sign`; this kind of signature has no chance in it.
#[test]
fn a_claim_is_signed_as_openssl_signs_it() {
    let form = String::from_utf8(service(KEY).unwrap().form(1_700_000_000).unwrap()).unwrap();
    let expected = include_str!("../../tests/google/service-account.jwt").trim();
    assert_eq!(form, format!("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion={expected}"));
}

#[test]
fn a_user_s_file() {
    let file = json!({"type": "authorized_user", "client_id": "id", "client_secret": "s&t", "refresh_token": "1//r",
        "quota_project_id": "q"});
    let credential = GoogleCredential::parse(&file.to_string()).unwrap();
    let form = String::from_utf8(credential.form(0).unwrap()).unwrap();
    assert_eq!(form, "grant_type=refresh_token&client_id=id&client_secret=s%26t&refresh_token=1%2F%2Fr");
    assert_eq!((credential.project(), credential.quota_project()), (Some("q"), Some("q")));
    assert_eq!(credential.token_uri, TOKEN_URI);
}

#[test]
fn files_that_are_no_credential() {
    let error = |text: &str| GoogleCredential::parse(text).unwrap_err().to_string();
    assert_eq!(error("{}"), "read Google credentials: the field type is missing");
    assert_eq!(
        error(r#"{"type": "external_account"}"#),
        "use Google credentials of type \"external_account\": only authorized_user and service_account are known"
    );
    assert_eq!(
        error(r#"{"type": "authorized_user", "client_id": "x"}"#),
        "read Google credentials: the field client_secret is missing"
    );
    let quoted = error("{\"type\": \"authorized_user\", \"client_secret\": 7734}");
    assert!(quoted.starts_with("read Google credentials: not the expected JSON at line 1") && !quoted.contains("7734"));
}

#[test]
fn keys_that_can_not_sign() {
    let error = |key: &str| service(key).unwrap_err().to_string();
    assert_eq!(error("nonsense"), "read the private key of a service account: it is not PEM");
    let elliptic = include_str!("../../tests/tls/server.key.pem");
    assert_eq!(error(elliptic), "read the private key of a service account: it is not an RSA key");
}

#[test]
fn nothing_secret_is_printed() {
    let printed = format!("{:?}", service(KEY).unwrap());
    assert_eq!(printed, "GoogleCredential { project: Some(\"p\"), .. }");
}
