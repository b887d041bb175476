//! What does the daemon prove its name with? One certificate and its key, read once at start.
//!
//! rustls with ring, TLS 1.2 and 1.3; HTTP/2 is offered before HTTP/1.1 (RFC 7301).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, InconsistentKeys, ServerConfig};

use crate::boot::BootError;
use crate::options::TlsFiles;

/// Why TLS can't be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read.
    #[error("read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file of `--tls-cert` holds none.
    #[error("find a certificate in {}: it holds no PEM block CERTIFICATE", .0.display())]
    NoCertificate(PathBuf),
    /// The file of `--tls-key` holds none.
    #[error("find a private key in {}: it holds no PEM block PRIVATE KEY", .0.display())]
    NoKey(PathBuf),
    /// The key needs a passphrase.
    #[error("use the key in {}: it is encrypted; decrypt it with `openssl pkey`", .0.display())]
    EncryptedKey(PathBuf),
    /// A file is no PEM.
    #[error("read {} as PEM: {reason}", path.display())]
    Pem {
        /// Which.
        path: PathBuf,
        /// Where it breaks off.
        reason: String,
    },
    /// Certificate and key are not of one pair.
    #[error("use {} with {}: the key is not the certificate's", certificate.display(), key.display())]
    Mismatch {
        /// The certificate.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
    },
    /// Anything else that rustls finds.
    #[error("use {} with {}: {source}", certificate.display(), key.display())]
    Unusable {
        /// The certificate.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
        /// What is wrong.
        source: rustls::Error,
    },
}

/// Takes the handshakes of a listener.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, BootError> {
    config(files).map(|config| TlsAcceptor::from(Arc::new(config))).map_err(BootError::Tls)
}

fn config(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let chain = certificates(&files.certificate)?;
    let key = private_key(&files.key)?;
    let unusable = |source| match source {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            TlsError::Mismatch { certificate: files.certificate.clone(), key: files.key.clone() }
        }
        source => TlsError::Unusable { certificate: files.certificate.clone(), key: files.key.clone(), source },
    };
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(unusable)?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key).map_err(unusable)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|error| broken(path, &error))?;
    if chain.is_empty() { Err(TlsError::NoCertificate(path.to_owned())) } else { Ok(chain) }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = read(path)?;
    // PKCS #8 says so in the block's name (RFC 7468 §11), older keys in a header of the block (RFC 1421 §4.6.1.1).
    let encrypted = [&b"BEGIN ENCRYPTED PRIVATE KEY"[..], b"Proc-Type: 4,ENCRYPTED"];
    if encrypted.iter().any(|mark| text.windows(mark.len()).any(|window| window == *mark)) {
        return Err(TlsError::EncryptedKey(path.to_owned()));
    }
    match PrivateKeyDer::from_pem_slice(&text) {
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) => Err(TlsError::NoKey(path.to_owned())),
        Err(error) => Err(broken(path, &error)),
    }
}

fn broken(path: &Path, error: &pem::Error) -> TlsError {
    TlsError::Pem { path: path.to_owned(), reason: error.to_string() }
}

/// The largest PEM file that is taken: a chain of many certificates is some ten kilobytes.
const PEM_BYTES: u64 = 1 << 20;

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |source| TlsError::Read { path: path.to_owned(), source };
    let meta = std::fs::metadata(path).map_err(failed)?;
    if meta.len() > PEM_BYTES {
        return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than a mebibyte")));
    }
    std::fs::read(path).map_err(failed)
}
