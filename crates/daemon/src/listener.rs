//! Where does a daemon listen? A TCP address, a Unix-domain socket, or both.

mod socket;

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_rustls::TlsAcceptor;

use crate::boot::{self, BootError, bind_ip};
use crate::options::{DaemonOptions, PortOption};
use crate::tls;

pub(crate) use socket::SocketFile;
use socket::UnixSocket;

/// The places to listen on; at least one.
#[derive(Debug)]
pub(crate) struct Listeners {
    tcp: Option<TcpListener>,
    unix: Option<UnixSocket>,
}

/// The TLS of the TCP listener.
#[derive(Clone)]
pub(crate) struct Tls(TlsAcceptor);

/// A connection that came in.
#[derive(Debug)]
pub(crate) enum Accepted {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

impl Listeners {
    /// Listens everywhere that the options say; a usual port that is taken moves on and adds a notice.
    pub(crate) async fn bind(options: &DaemonOptions, notices: &mut Vec<String>) -> Result<Self, BootError> {
        let tcp = if options.tcp { Some(listen(options, notices).await?) } else { None };
        let unix = options.socket.as_deref().map(UnixSocket::bind).transpose()?;
        Ok(Self { tcp, unix })
    }

    /// The TCP address, if there is one.
    pub(crate) fn address(&self) -> io::Result<Option<SocketAddr>> {
        self.tcp.as_ref().map(TcpListener::local_addr).transpose()
    }

    /// The Unix-domain socket's file, for whoever decides when it goes.
    pub(crate) fn take_socket_file(&mut self) -> Option<SocketFile> {
        self.unix.as_mut().and_then(UnixSocket::take_file)
    }

    /// The next connection. Cancel-safe: nothing that was accepted is lost.
    pub(crate) async fn accept(&self) -> io::Result<Accepted> {
        let tcp = async {
            match &self.tcp {
                Some(listener) => listener.accept().await.map(|(stream, peer)| Accepted::Tcp(stream, peer)),
                None => std::future::pending().await,
            }
        };
        let unix = async {
            match &self.unix {
                Some(socket) => socket.accept().await.map(Accepted::Unix),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = tcp => accepted,
            accepted = unix => accepted,
        }
    }
}

impl Tls {
    /// Reads the certificate, if the options name one.
    pub(crate) fn load(options: &DaemonOptions) -> Result<Option<Self>, BootError> {
        options.tls.as_ref().map(|files| tls::acceptor(files).map(Self)).transpose()
    }

    /// The handshake of one connection.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<tokio_rustls::server::TlsStream<TcpStream>> {
        self.0.accept(stream).await
    }
}

async fn listen(options: &DaemonOptions, notices: &mut Vec<String>) -> Result<TcpListener, BootError> {
    let ip = resolve(&options.hostname).await?;
    let mut port = match options.port {
        PortOption::Given(port) => port,
        PortOption::Default => PortOption::USUAL,
    };
    loop {
        let address = SocketAddr::new(ip, port);
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok(listener),
            Err(error) => {
                let taken = error.kind() == io::ErrorKind::AddrInUse;
                let next = port.checked_add(1).filter(|_| taken && options.port == PortOption::Default);
                let Some(next) = next else {
                    return Err(BootError::Bind { address: address.to_string(), source: error });
                };
                notices.push(format!("port {port} is in use, trying {next}..."));
                port = next;
            }
        }
    }
}

async fn resolve(hostname: &str) -> Result<IpAddr, BootError> {
    if let Some(ip) = bind_ip(hostname) {
        return Ok(ip);
    }
    let unknown = |source| BootError::UnknownHostname { hostname: hostname.to_owned(), source };
    let mut addresses = tokio::net::lookup_host((hostname, 0)).await.map_err(unknown)?.collect::<Vec<_>>();
    // `localhost` is both; clients try 127.0.0.1 more often.
    addresses.sort_by_key(SocketAddr::is_ipv6);
    let none = || unknown(io::Error::new(io::ErrorKind::NotFound, "no address"));
    let ip = addresses.first().map(SocketAddr::ip).ok_or_else(none)?;
    if boot::is_loopback_bind(hostname) && !crate::peer::is_loopback(ip) {
        // A name that the guards below take for this machine must be it.
        return Err(unknown(io::Error::other("does not lead to this machine")));
    }
    Ok(ip)
}
