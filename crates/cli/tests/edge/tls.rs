//! HTTPS: both versions of HTTP behind it, and files that can't be used.

use std::sync::Arc;

use convoke_testkit::{TestEnvironment, run};
use hyper::Version;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::process::{Daemon, TOKEN, exchange, request, serve};

/// A certificate of `localhost` and 127.0.0.1 that expires in 2126, and keys that protect nothing.
fn file(name: &str) -> String {
    format!("{}/tests/edge/tls/{name}", env!("CARGO_MANIFEST_DIR"))
}

async fn connect(daemon: &Daemon, protocol: &[u8]) -> std::io::Result<TlsStream<tokio::net::TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file("certificate.pem")).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, daemon.connect().await).await
}

#[tokio::test]
async fn both_versions_of_http_are_spoken_over_tls_and_nothing_without_it() {
    let environment = TestEnvironment::new();
    let (certificate, key) = (file("certificate.pem"), file("key.pem"));
    let daemon = Daemon::start(serve(&environment, &["--port=0", "--tls-cert", &certificate, "--tls-key", &key]));
    assert!(daemon.place.starts_with("https://127.0.0.1:"), "{}", daemon.place);
    for (protocol, version) in [(&b"h2"[..], Version::HTTP_2), (b"http/1.1", Version::HTTP_11)] {
        for (origin, status) in [(daemon.place.clone(), 200), ("https://evil.example".to_owned(), 403)] {
            let stream = connect(&daemon, protocol).await.unwrap();
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol));
            let mut request = request(&daemon.place, "/capabilities", TOKEN);
            request.headers_mut().insert("Origin", origin.parse().unwrap());
            assert_eq!(exchange(stream, version, request).await.0, status, "{version:?} {origin}");
        }
    }
    assert!(connect(&daemon, b"smtp").await.is_err(), "a protocol that is not spoken here");
    let plain = daemon.connect().await;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(plain)).await.unwrap();
    let (answer, _) = tokio::join!(sender.send_request(request("", "/health", "")), connection);
    assert!(answer.is_err(), "nothing is answered without TLS");
}

#[test]
fn files_that_can_not_be_used_are_told_apart() {
    let environment = TestEnvironment::new();
    let (certificate, key) = (file("certificate.pem"), file("key.pem"));
    let broken = environment.write("home/broken.pem", "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n");
    let broken = broken.display().to_string();
    for (given_certificate, given_key, why) in [
        ("/nope/certificate.pem", key.as_str(), "read /nope/certificate.pem: No such file"),
        (&key, &key, "it holds no PEM block CERTIFICATE"),
        (&broken, &key, "as PEM"),
        (&certificate, "/nope/key.pem", "read /nope/key.pem: No such file"),
        (&certificate, &certificate, "it holds no PEM block PRIVATE KEY"),
        (&certificate, &file("encrypted-key.pem"), "it is encrypted"),
        (&certificate, &file("other-key.pem"), "the key is not the certificate's"),
    ] {
        let args = ["--port=0", "--tls-cert", given_certificate, "--tls-key", given_key];
        let ran = run(&mut serve(&environment, &args), "");
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("can't serve TLS") && ran.stderr.contains(why), "{args:?}: {}", ran.stderr);
    }
    for args in [["--tls-cert", &certificate], ["--tls-key", &key]] {
        let ran = run(&mut serve(&environment, &args), "");
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains("were not provided"), "{}", ran.stderr);
    }
    let args = ["--listen=unix:s", "--tls-cert", &certificate, "--tls-key", &key];
    let ran = run(&mut serve(&environment, &args), "");
    assert!(ran.code == Some(1) && ran.stderr.contains("TLS needs a TCP address"), "{}", ran.stderr);
}
