//! Servers that want to know who calls: logging in, staying logged in, and being told that one is not.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use convoke_mcp::{Flow, LoggedIn, LoginError, LoginRequest, LoginStep, login, logout};
use convoke_testkit::mcp_site::{McpSite, SiteOptions, browse};
use futures::stream;
use tokio::sync::mpsc;

use super::*;

struct Home {
    site: McpSite,
    dir: tempfile::TempDir,
    entry: Value,
}

/// A person with a browser: what it is told to open, it opens.
fn opens(url: String) {
    tokio::spawn(async move { browse(&url).await.unwrap() });
}

impl Home {
    async fn new(options: SiteOptions) -> Self {
        let site = McpSite::start(SiteOptions { login: true, expires_in: 3600, ..options }).await.unwrap();
        let entry = json!({"type": "http", "url": site.url()});
        Self { site, dir: tempfile::tempdir().unwrap(), entry }
    }

    fn config(&self) -> ServerConfig {
        ServerConfig::parse("s", &self.entry).unwrap()
    }

    fn tokens(&self) -> PathBuf {
        self.dir.path().join("tokens.json")
    }

    async fn log_in(&self, flow: Flow, mut tell: impl FnMut(LoginStep)) -> Result<LoggedIn, LoginError> {
        let (config, tokens) = (self.config(), self.tokens());
        let request =
            LoginRequest { server: &config, tokens: &tokens, flow, port: None, patience: LONG, client: "test" };
        tokio::time::timeout(LONG, login(request, &mut tell, stream::pending())).await.expect("the login must end")
    }

    async fn logged_in(options: SiteOptions) -> Self {
        let home = Self::new(options).await;
        let done = home.log_in(Flow::Auto, |step| match step {
            LoginStep::Open { url, .. } => opens(url),
            other => panic!("{other:?}"),
        });
        assert!(done.await.unwrap().renews);
        home
    }

    /// A session with the tokens of this home.
    fn room(&self) -> Room {
        let tokens = self.tokens();
        let dir = tempfile::tempdir().unwrap();
        let options = McpOptions {
            spawner: Spawner::unguarded(),
            secret_variables: Vec::new(),
            roots: Vec::new(),
            client: ("test".to_owned(), "0".to_owned()),
            tokens: Some(tokens),
        };
        let servers = McpServers::new(options, vec![self.config()]);
        servers.start();
        Room { dir, servers }
    }

    fn file(&self) -> String {
        std::fs::read_to_string(self.tokens()).unwrap_or_default()
    }
}

async fn echo(room: &Room) {
    assert_eq!(room.servers.settled(LONG).await, []);
    let report = &room.servers.reports()[0];
    assert_eq!(report.state, ServerState::Ready, "{report:?}");
    assert_eq!(room.say("mcp_s_echo", json!({"text": "hi"})).await.unwrap(), "hi");
}

async fn needs_login(room: &Room) {
    room.until(|servers| servers.reports()[0].state == ServerState::Failed).await;
    let report = &room.servers.reports()[0];
    assert!(report.needs_login, "{report:?}");
    assert_eq!(report.reason.as_deref(), Some("it needs login: run `convoke mcp login s`"));
}

#[tokio::test]
async fn a_server_without_a_token_says_so_at_once_and_is_there_after_the_login() {
    for silent_challenge in [false, true] {
        let home = Home::new(SiteOptions { silent_challenge, ..SiteOptions::default() }).await;
        let room = home.room();
        needs_login(&room).await;
        // Whoever looks in vain, and ends in the middle of it, ends.
        let other = home.room();
        needs_login(&other).await;
        other.servers.look_for_logins();
        tokio::time::timeout(LONG, other.servers.close()).await.expect("the end must come");
        let done = home.log_in(Flow::Browser, |step| match step {
            LoginStep::Open { url, comes_back: true } => opens(url),
            other => panic!("{other:?}"),
        });
        assert!(done.await.unwrap().renews);
        assert_eq!((home.site.asked("/register"), home.site.granted("authorization_code")), (1, 1));
        let mode = std::fs::metadata(home.tokens()).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        // The session that waits for it need not be begun again.
        room.servers.look_for_logins();
        room.until(|servers| servers.reports()[0].state == ServerState::Ready).await;
        echo(&room).await;
        room.servers.close().await;
    }
}

#[tokio::test]
async fn the_older_way_takes_tokens_too() {
    let mut home = Home::new(SiteOptions::default()).await;
    home.entry = json!({"type": "sse", "url": home.site.sse_url()});
    needs_login(&home.room()).await;
    let done = home.log_in(Flow::Browser, |step| match step {
        LoginStep::Open { url, .. } => opens(url),
        other => panic!("{other:?}"),
    });
    done.await.unwrap();
    let room = home.room();
    echo(&room).await;
    home.site.revoke();
    assert_eq!(room.say("mcp_s_echo", json!({"text": "hi"})).await.unwrap(), "hi");
    assert_eq!(home.site.granted("refresh_token"), 1);
    room.servers.close().await;
}

#[tokio::test]
async fn only_the_answer_to_this_login_is_taken_from_the_browser_or_by_hand() {
    let home = Home::new(SiteOptions::default()).await;
    let (paste, pasted) = mpsc::channel(8);
    let pasted = stream::unfold(pasted, |mut pasted| async move { Some((pasted.recv().await?, pasted)) });
    let (config, tokens) = (home.config(), home.tokens());
    let request = LoginRequest {
        server: &config,
        tokens: &tokens,
        flow: Flow::Browser,
        port: None,
        patience: LONG,
        client: "test",
    };
    let mut notes = 0;
    let mut person = None;
    let tell = |step| match step {
        LoginStep::Open { url, .. } => {
            let paste = paste.clone();
            person = Some(tokio::spawn(async move {
                let redirect = url.split("redirect_uri=").nth(1).unwrap().split('&').next().unwrap().to_owned();
                let redirect = redirect.replace("%3A", ":").replace("%2F", "/");
                // Guesses of others, at the port and at the keyboard.
                assert_eq!(browse(&format!("{redirect}?code=c&state=guessed")).await.unwrap().0, 400);
                assert_eq!(browse(&format!("{redirect}?code=c")).await.unwrap().0, 400);
                let root = redirect.replace("/oauth/callback", "/favicon.ico");
                assert_eq!(browse(&root).await.unwrap().0, 404);
                paste.send("nonsense".to_owned()).await.unwrap();
                paste.send(format!("{redirect}?code=c&state=guessed")).await.unwrap();
                assert_eq!(browse(&url).await.unwrap().0, 200);
            }));
        }
        LoginStep::Note(_) => notes += 1,
        other => panic!("{other:?}"),
    };
    tokio::time::timeout(LONG, login(request, tell, Box::pin(pasted))).await.unwrap().unwrap();
    person.unwrap().await.unwrap();
    assert_eq!(notes, 2);
    assert_eq!(home.site.granted("authorization_code"), 1);
}

#[tokio::test]
async fn where_no_browser_comes_back_its_last_address_is_pasted() {
    let mut home = Home::new(SiteOptions::default()).await;
    home.entry["oauth"] = json!({"redirectUri": "https://elsewhere.example/back", "scopes": ["one", "two"]});
    let (paste, pasted) = mpsc::channel(1);
    let pasted = stream::unfold(pasted, |mut pasted| async move { Some((pasted.recv().await?, pasted)) });
    let (config, tokens) = (home.config(), home.tokens());
    let request =
        LoginRequest { server: &config, tokens: &tokens, flow: Flow::Auto, port: None, patience: LONG, client: "test" };
    let tell = |step| match step {
        LoginStep::Open { url, comes_back: false } => {
            assert!(url.contains("scope=one+two") || url.contains("scope=one%20two"), "{url}");
            let paste = paste.clone();
            tokio::spawn(async move {
                let (status, address) = browse(&url).await.unwrap();
                assert!(status == 302 && address.starts_with("https://elsewhere.example/back?code="), "{address}");
                paste.send(format!("  {address}\n")).await.unwrap();
            });
        }
        other => panic!("{other:?}"),
    };
    tokio::time::timeout(LONG, login(request, tell, Box::pin(pasted))).await.unwrap().unwrap();
    let room = home.room();
    echo(&room).await;
    room.servers.close().await;
}

#[tokio::test]
async fn a_client_s_secret_is_shown_where_it_is_asked_for() {
    let home = Home::logged_in(SiteOptions { client_secret: true, ..SiteOptions::default() }).await;
    home.site.revoke();
    let room = home.room();
    echo(&room).await;
    assert_eq!(home.site.granted("refresh_token"), 1);
    room.servers.close().await;
}

#[tokio::test]
async fn a_token_is_renewed_ahead_of_its_end() {
    // Good for less than the time ahead of which it is renewed.
    let site = McpSite::start(SiteOptions { login: true, expires_in: 30, ..SiteOptions::default() }).await.unwrap();
    let entry = json!({"type": "http", "url": site.url()});
    let home = Home { site, dir: tempfile::tempdir().unwrap(), entry };
    let done = home.log_in(Flow::Auto, |step| match step {
        LoginStep::Open { url, .. } => opens(url),
        other => panic!("{other:?}"),
    });
    done.await.unwrap();
    let before = home.site.requests().len();
    let room = home.room();
    echo(&room).await;
    assert!(home.site.granted("refresh_token") > 1, "each request renews what is about to end");
    let bare =
        |request: &&convoke_testkit::mcp_site::SiteRequest| request.path == "/mcp" && request.authorization.is_none();
    assert_eq!(home.site.requests().iter().skip(before).filter(bare).count(), 0, "no request goes out to be refused");
    room.servers.close().await;
}

#[tokio::test]
async fn a_token_that_is_refused_in_the_middle_is_renewed_once_by_all_sessions_together() {
    let home = Home::logged_in(SiteOptions::default()).await;
    let rooms = [home.room(), home.room(), home.room()];
    for room in &rooms {
        echo(room).await;
    }
    home.site.revoke();
    let calls = rooms.iter().flat_map(|room| (0..3).map(move |_| room.say("mcp_s_echo", json!({"text": "on"}))));
    for answer in futures::future::join_all(calls).await {
        assert_eq!(answer.unwrap(), "on");
    }
    assert_eq!(home.site.granted("refresh_token"), 1);
    for room in rooms {
        room.servers.close().await;
    }
}

#[tokio::test]
async fn a_token_that_is_not_renewed_ends_in_a_login_and_not_in_waiting() {
    let home = Home::logged_in(SiteOptions::default()).await;
    let room = home.room();
    echo(&room).await;
    home.site.revoke();
    home.site.refuse_renewal();
    let error = room.say("mcp_s_echo", json!({"text": "x"})).await.unwrap_err();
    assert_eq!(error.to_string(), "the MCP server \"s\" wants a login: run `convoke mcp login s`");
    needs_login(&room).await;
    // Nobody tries again what can't work.
    assert_eq!(home.site.granted("refresh_token"), 1);
    assert!(!home.file().contains("SECRET"), "{}", home.file());
    room.servers.close().await;
}

#[tokio::test]
async fn a_device_code_is_asked_for_at_the_server_s_pace() {
    let words = vec!["authorization_pending", "slow_down"];
    let home = Home::new(SiteOptions { device: Some(words), ..SiteOptions::default() }).await;
    let mut typed = None;
    let done = home.log_in(Flow::Auto, |step| match step {
        LoginStep::Type { url, code, .. } => typed = Some((url, code)),
        other => panic!("{other:?}"),
    });
    assert!(done.await.unwrap().renews);
    let (url, code) = typed.unwrap();
    assert!(url.ends_with("/type") && code == "WDJB-MJHT");
    assert_eq!(home.site.granted("urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code"), 3);
    home.site.revoke();
    let room = home.room();
    echo(&room).await;
    room.servers.close().await;
}

#[tokio::test]
async fn a_refused_device_or_a_server_without_a_word_ends_the_login() {
    let denied = SiteOptions { device: Some(vec!["access_denied"]), ..SiteOptions::default() };
    let home = Home::new(denied).await;
    let error = home.log_in(Flow::Device, |_| {}).await.unwrap_err();
    assert_eq!(error.to_string(), "log in to s: the login was refused");
    let home = Home::new(SiteOptions { no_metadata: true, silent_challenge: true, ..SiteOptions::default() }).await;
    let error = home.log_in(Flow::Auto, |_| {}).await.unwrap_err();
    assert!(error.reason.contains("oauth.authorizationUrl"), "{error}");
    let error = home.log_in(Flow::Device, |_| {}).await.unwrap_err();
    assert!(error.reason.contains("no device codes"), "{error}");
    assert_eq!(home.file(), "");
}

#[tokio::test]
async fn a_token_goes_to_its_own_address_only_and_is_forgotten_on_request() {
    let mut home = Home::logged_in(SiteOptions::default()).await;
    let other = McpSite::start(SiteOptions { login: true, ..SiteOptions::default() }).await.unwrap();
    let entry = std::mem::replace(&mut home.entry, json!({"type": "http", "url": other.url()}));
    needs_login(&home.room()).await;
    assert!(other.requests().iter().all(|request| request.authorization.is_none()));
    // A header that is written down stands for a token.
    home.entry = json!({"type": "http", "url": home.site.url(), "headers": {"Authorization": "Bearer mine"}});
    let room = home.room();
    room.until(|servers| servers.reports()[0].state == ServerState::Failed).await;
    assert!(room.servers.reports()[0].reason.as_deref().unwrap().contains("Authorization header"));
    home.entry = entry;
    assert!(logout(&home.tokens(), "s").unwrap());
    assert!(!logout(&home.tokens(), "s").unwrap());
    needs_login(&home.room()).await;
}
