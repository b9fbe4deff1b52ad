//! The address of a store: one line of text for every deployment.
//!
//! ```text
//! redis://[user:password@]host[:port][/database]
//! rediss://…                                           TLS
//! redis+sentinel://host[:port],host[:port]/name        the primary with this name, found by these sentinels
//! redis+cluster://host[:port],host[:port]              some nodes of a cluster; the others are discovered
//! ```
//! `valkey` can replace `redis`. `?ca=FILE` trusts the certificates in a file (the system's are not trusted);
//! `?sentinel=user:password` are the credentials for the sentinels; `&` separates the two.
//!
//! Invariant  No password is printed, whether or not the text is a valid address.

use percent_encoding::percent_decode_str;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
/// The query parameter with the credentials for sentinels.
const SENTINEL: &str = "sentinel";

/// The address of a store.
///
/// ```
/// use tidegate_redis::Address;
///
/// let address: Address = "redis+sentinel://10.0.0.1,10.0.0.2/main".parse()?;
/// assert_eq!(address.to_string(), "redis+sentinel://10.0.0.1:26379,10.0.0.2:26379/main");
/// # Ok::<(), tidegate_redis::AddressError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    pub(crate) deployment: Deployment,
    pub(crate) hosts: Vec<Host>,
    pub(crate) credentials: Option<Credentials>,
    /// The credentials for sentinels.
    pub(crate) sentinel: Option<Credentials>,
    pub(crate) is_tls: bool,
    pub(crate) database: i64,
    pub(crate) ca: Option<PathBuf>,
}

/// How the servers of a store are organised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deployment {
    Single,
    Sentinel { name: String },
    Cluster,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) port: u16,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: String,
}

/// The error for a text that is not the address of a store.
///
/// ```
/// use tidegate_redis::Address;
///
/// let error = "http://127.0.0.1".parse::<Address>().unwrap_err();
/// assert!(error.to_string().contains("for example redis://127.0.0.1:6379"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not the address of a store: {why}; for example redis://127.0.0.1:6379")]
pub struct AddressError {
    /// The text, without its password.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        read(text).map_err(|why| AddressError { text: hidden(text), why })
    }
}

fn read(text: &str) -> Result<Address, &'static str> {
    let (scheme, rest) = text.split_once("://").ok_or("it has no scheme")?;
    let (protocol, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
    let is_tls = match protocol {
        "redis" | "valkey" => false,
        "rediss" | "valkeys" => true,
        _ => return Err("the scheme must be redis, rediss, valkey or valkeys"),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (credentials, hosts) = match authority.rsplit_once('@') {
        Some((credentials, hosts)) => (Some(read_credentials(credentials)?), hosts),
        None => (None, authority),
    };
    let (deployment, database) = match kind {
        "" => (Deployment::Single, read_database(path)?),
        "cluster" if path.is_empty() => (Deployment::Cluster, 0),
        "cluster" => return Err("a cluster has no databases"),
        "sentinel" => {
            let (name, database) = path.split_once('/').unwrap_or((path, ""));
            if name.is_empty() {
                return Err("after the sentinels comes the name of the primary, as in /main");
            }
            (Deployment::Sentinel { name: name.to_owned() }, read_database(database)?)
        }
        _ => return Err("after the + comes sentinel or cluster"),
    };
    let port = if matches!(deployment, Deployment::Sentinel { .. }) { SENTINEL_PORT } else { PORT };
    let hosts =
        hosts.split(',').map(|host| read_host(host, port)).collect::<Result<Vec<_>, _>>()?;
    if deployment == Deployment::Single && hosts.len() > 1 {
        return Err("several hosts need +sentinel or +cluster");
    }
    let Query { ca, sentinel } = read_query(query, is_tls, &deployment)?;
    Ok(Address { deployment, hosts, credentials, sentinel, is_tls, database, ca })
}

fn read_credentials(text: &str) -> Result<Credentials, &'static str> {
    let (user, password) = text.split_once(':').ok_or("credentials have the form user:password")?;
    let user = decoded(user)?;
    Ok(Credentials {
        user: Some(user).filter(|user| !user.is_empty()),
        password: decoded(password)?,
    })
}

fn read_host(text: &str, port: u16) -> Result<Host, &'static str> {
    const BAD_PORT: &str = "a port is a number from 1 to 65535";
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (name, rest) = rest.split_once(']').ok_or("a `[` has no `]`")?;
            (
                name,
                rest.strip_prefix(':')
                    .map_or(Ok(port), |port| port.parse().map_err(|_| BAD_PORT))?,
            )
        }
        None => match text.split_once(':') {
            Some((name, port)) => (name, port.parse().map_err(|_| BAD_PORT)?),
            None => (text, port),
        },
    };
    if name.is_empty() || port == 0 {
        return Err(if port == 0 { BAD_PORT } else { "a host has no name" });
    }
    Ok(Host { name: name.to_owned(), port })
}

fn read_database(text: &str) -> Result<i64, &'static str> {
    if text.is_empty() {
        return Ok(0);
    }
    let number: Result<u16, _> = text.parse();
    number.map(i64::from).map_err(|_| "after the host comes the number of a database")
}

#[derive(Default)]
struct Query {
    ca: Option<PathBuf>,
    sentinel: Option<Credentials>,
}

fn read_query(text: &str, is_tls: bool, deployment: &Deployment) -> Result<Query, &'static str> {
    let mut query = Query::default();
    let has_sentinels = matches!(deployment, Deployment::Sentinel { .. });
    for part in text.split('&').filter(|_| !text.is_empty()) {
        match part.split_once('=') {
            Some(("ca", file)) if is_tls => query.ca = Some(PathBuf::from(decoded(file)?)),
            Some(("ca", _)) => return Err("certificates are only for rediss://"),
            Some((SENTINEL, credentials)) if has_sentinels => {
                query.sentinel = Some(read_credentials(credentials)?);
            }
            Some((SENTINEL, _)) => return Err("there are no sentinels without +sentinel"),
            _ => return Err("after the ? comes ca=FILE or sentinel=user:password"),
        }
    }
    Ok(query)
}

/// Decodes percent-encoding.
fn decoded(text: &str) -> Result<String, &'static str> {
    let is_hex = |rest: &str| {
        rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    // The decoder leaves a `%` without digits as it is.
    if !text.split('%').skip(1).all(is_hex) {
        return Err("after a % come two hexadecimal digits");
    }
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| "it is not UTF-8")?;
    Ok(decoded.into_owned())
}

/// Removes credentials from a text that is not a valid address.
fn hidden(text: &str) -> String {
    let (text, query) = text.split_once('?').unwrap_or((text, ""));
    let end = match query {
        "" => String::new(),
        query if query.contains(SENTINEL) || query.contains('@') => "?…".to_owned(),
        query => format!("?{query}"),
    };
    let shown = match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://…@{rest}"),
        _ => text.to_owned(),
    };
    shown + &end
}

/// Prints the address without its credentials.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.deployment {
            Deployment::Single => "",
            Deployment::Sentinel { .. } => "+sentinel",
            Deployment::Cluster => "+cluster",
        };
        write!(f, "redis{}{kind}://", if self.is_tls { "s" } else { "" })?;
        for (index, host) in self.hosts.iter().enumerate() {
            write!(f, "{}{host}", if index > 0 { "," } else { "" })?;
        }
        if let Deployment::Sentinel { name } = &self.deployment {
            write!(f, "/{name}")?;
        }
        if self.database > 0 { write!(f, "/{}", self.database) } else { Ok(()) }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn every_deployment_has_a_form() {
        for (text, printed) in [
            ("redis://localhost", "redis://localhost:6379"),
            ("valkey://localhost:7000/3", "redis://localhost:7000/3"),
            ("rediss://[::1]:7000", "rediss://[::1]:7000"),
            ("redis+sentinel://a,b:5/main/2", "redis+sentinel://a:26379,b:5/main/2"),
            ("rediss+cluster://a,b", "rediss+cluster://a:6379,b:6379"),
        ] {
            assert_eq!(address(text).to_string(), printed);
        }
    }

    #[test]
    fn credentials_may_have_a_user_and_any_password() {
        let credentials = address("redis://limiter:p%40ss%3A@h").credentials.expect("it has");
        assert_eq!(credentials.user.as_deref(), Some("limiter"));
        assert_eq!(credentials.password, "p@ss:");
        assert_eq!(address("redis://:secret@h").credentials.expect("it has").user, None);
        assert_eq!(address("rediss://h?ca=/a%20b.pem").ca, Some(PathBuf::from("/a b.pem")));
    }

    #[test]
    fn sentinels_may_have_other_credentials() {
        let both = address("rediss+sentinel://a:b@h/main?sentinel=watcher:p%26ss&ca=/ca.pem");
        assert_eq!(both.credentials.as_ref().expect("it has").password, "b");
        let sentinel = both.sentinel.as_ref().expect("it has");
        assert_eq!(
            (sentinel.user.as_deref(), sentinel.password.as_str()),
            (Some("watcher"), "p&ss")
        );
        assert_eq!(both.ca, Some(PathBuf::from("/ca.pem")));
        assert_eq!(both.to_string(), "rediss+sentinel://h:26379/main");
        let nameless = address("redis+sentinel://h/main?sentinel=:secret").sentinel;
        assert_eq!(nameless.expect("it has").user, None);
    }

    #[test]
    fn errors_do_not_contain_the_password() {
        for (text, why) in [
            ("localhost", "no scheme"),
            ("http://localhost", "the scheme must be"),
            ("redis://a,b", "several hosts"),
            ("redis+sentinel://a", "the name of the primary"),
            ("redis+cluster://a/1", "no databases"),
            ("redis+ring://a", "after the +"),
            ("redis://", "no name"),
            ("redis://a:0", "from 1 to 65535"),
            ("redis://a:x", "from 1 to 65535"),
            ("redis://a/main", "the number of a database"),
            ("redis://secret@a", "user:password"),
            ("redis+sentinel://a/main?sentinel=secret", "user:password"),
            ("redis://a?sentinel=a:b", "without +sentinel"),
            ("redis://a?ca=b", "only for rediss"),
            ("rediss://a?tls=b", "ca=FILE"),
            ("redis://:%zz@a", "two hexadecimal digits"),
            ("redis://:%+f@a", "two hexadecimal digits"),
            ("redis://:%4@a", "two hexadecimal digits"),
            ("redis://:%ff@a", "not UTF-8"),
            ("redis://[::1", "has no `]`"),
        ] {
            let error = text.parse::<Address>().expect_err(text).to_string();
            assert!(error.contains(why), "{error}");
        }
        let error = "redis+x://user:secret@h".parse::<Address>().expect_err("no kind").to_string();
        assert!(!error.contains("secret") && error.contains("…@h"), "{error}");
        assert!(!format!("{:?}", address("redis://user:secret@h")).contains("secret"));
        for text in ["redis+sentinel://h/?sentinel=a:secret", "redis://h?sentinel=a:x@secret"] {
            let error = text.parse::<Address>().expect_err("it is none").to_string();
            assert!(!error.contains("secret") && error.contains("://h"), "{error}");
        }
    }
}
