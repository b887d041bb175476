//! Which addresses may be fetched from? Those of the public internet, and those that a person named.
//!
//! A name is resolved here, once; what it resolved to is what is connected to, so that a server of names can't say one
//! thing to the check and another to the connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use reqwest::Url;

// A server of names that is silent for longer is down.
const LOOKUP_TIME_MAX: Duration = Duration::from_secs(5);

/// The addresses to connect to for `url`, or why there are none, as a phrase. `allowed` are hosts, with or without a
/// port, that may be anywhere.
pub(super) async fn check(url: &Url, allowed: &[String]) -> Result<Vec<IpAddr>, String> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("{}: is not an address of the web", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it has a user name or a password in it".to_owned());
    }
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
        return Err("it names no host".to_owned());
    };
    let with_port = format!("{host}:{port}");
    let is_allowed =
        allowed.iter().any(|entry| entry.eq_ignore_ascii_case(host) || entry.eq_ignore_ascii_case(&with_port));
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let addresses = match bare.parse::<IpAddr>() {
        Ok(address) => vec![address],
        Err(_) => lookup(bare, port).await?,
    };
    let usable: Vec<IpAddr> = addresses.iter().copied().filter(|address| is_allowed || is_public(*address)).collect();
    if usable.len() < addresses.len() {
        // One private address among public ones is no accident either.
        return Err(format!("{host} is on a private network, which web_fetch does not reach"));
    }
    Ok(usable)
}

async fn lookup(host: &str, port: u16) -> Result<Vec<IpAddr>, String> {
    let found = tokio::time::timeout(LOOKUP_TIME_MAX, tokio::net::lookup_host((host, port))).await;
    let found: Vec<IpAddr> = match found {
        Ok(Ok(addresses)) => addresses.map(|address| address.ip()).collect(),
        Ok(Err(error)) => return Err(format!("{host} can't be found: {error}")),
        Err(_) => return Err(format!("{host} can't be found: the lookup took too long")),
    };
    if found.is_empty() { Err(format!("{host} has no address")) } else { Ok(found) }
}

/// Whether an address is one of the public internet: not this machine, its network, its cloud's metadata, or a way
/// around to one of them.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let reserved = match (a, b, c) {
        // This network, protocol assignments, benchmarks, shared by carriers.
        (0, ..) | (192, 0, 0) | (198, 18 | 19, _) | (100, 64..=127, _) => true,
        // What was 6to4's, and what was never given out.
        (192, 88, 99) | (240.., ..) => true,
        _ => false,
    };
    !(reserved
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, c, ..] = address.segments();
    let bits = address.to_bits();
    #[expect(clippy::cast_possible_truncation, reason = "32 of the 128 bits are meant")]
    let embedded = |shift: u32| Ipv4Addr::from_bits((bits >> shift) as u32);
    match (a, b, c) {
        // An address of version 4 in another dress: mapped, compatible, translated, 6to4.
        (0, 0, 0) | (0x64, 0xff9b, 0) => {
            !address.is_loopback() && !address.is_unspecified() && is_public_v4(embedded(0))
        }
        (0x2002, ..) => is_public_v4(embedded(80)),
        // Translated within one network; tunnels; documentation.
        (0x64, 0xff9b, _) | (0x2001, 0, _) | (0x2001, 0xdb8, _) | (0x3fff, ..) => false,
        // All that is given out lies here: not unique local, link-local, site-local or multicast.
        (0x2000..=0x3fff, ..) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_public_internet_is_public() {
        for public in [
            "8.8.8.8",
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for private in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.100.100.200",
            "192.0.0.192",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "203.0.113.1",
            "192.88.99.1",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "2001::1",
            "2001:db8::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "4000::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
    }

    #[tokio::test]
    async fn spellings_of_this_machine_are_not_let_through() {
        let check = async |url: &str, allowed: &[&str]| {
            let allowed: Vec<String> = allowed.iter().map(|entry| (*entry).to_owned()).collect();
            check(&Url::parse(url).unwrap(), &allowed).await
        };
        for url in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0177.0.0.1/",
            "http://[::1]/",
            "http://[::ffff:7f00:1]/",
            "http://localhost/",
            "http://LOCALHOST./",
            "http://0/",
            "http://169.254.169.254/latest/meta-data/",
            "http://user@8.8.8.8/",
            "http://:pw@8.8.8.8/",
            "ftp://8.8.8.8/",
            "file:///etc/passwd",
        ] {
            assert!(check(url, &[]).await.is_err(), "{url}");
        }
        assert_eq!(check("https://8.8.8.8/x", &[]).await, Ok(vec!["8.8.8.8".parse().unwrap()]));
        assert!(check("http://127.0.0.1:81/", &["127.0.0.1:80"]).await.is_err());
        assert!(check("http://127.0.0.1:80/", &["127.0.0.1:80"]).await.is_ok());
        assert!(check("http://LocalHost:9/", &["localhost"]).await.is_ok());
    }
}
