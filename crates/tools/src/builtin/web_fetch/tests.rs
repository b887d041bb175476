//! Against servers of our own: slow ones, huge ones, ones that send on, and ones that nobody may reach.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::super::testing::{Oracle, context, within};
use super::*;

/// Answers each path by what `answer` makes of it: raw HTTP, or `None` for silence.
struct Server {
    address: String,
    hits: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Server {
    async fn start(answer: impl Fn(&str) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (hits, answer) = (Arc::new(AtomicUsize::new(0)), Arc::new(answer));
        let mut tasks = JoinSet::new();
        let counted = Arc::clone(&hits);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let (answer, hits) = (Arc::clone(&answer), Arc::clone(&counted));
                connections.spawn(async move {
                    let mut request = vec![0; 4096];
                    let read = stream.read(&mut request).await.unwrap_or(0);
                    let request = String::from_utf8_lossy(&request[..read]).into_owned();
                    hits.fetch_add(1, Ordering::SeqCst);
                    let path = request.split(' ').nth(1).unwrap_or("/").to_owned();
                    match answer(&path) {
                        Some(bytes) => drop(stream.write_all(&bytes).await),
                        None => std::future::pending().await,
                    }
                });
            }
        });
        Self { address, hits, _tasks: tasks }
    }

    fn hits(&self) -> usize {
        self.hits.load(Ordering::SeqCst)
    }
}

fn ok(kind: &str, body: &str) -> Option<Vec<u8>> {
    Some(format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n{body}").into_bytes())
}

fn redirect(to: &str) -> Option<Vec<u8>> {
    Some(format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").into_bytes())
}

fn tool(allowed: &[&str], model: Option<Arc<Oracle>>) -> WebFetch {
    WebFetch::new(WebOptions {
        model: model.map(|model| model as Arc<dyn WebModel>),
        allowed_private_hosts: allowed.iter().map(|host| (*host).to_owned()).collect(),
        ..WebOptions::default()
    })
}

async fn fetch(tool: &WebFetch, prompt: &str) -> Result<String, (ErrorType, String)> {
    let done = within(tool.build(&json!({"prompt": prompt})).unwrap().execute(&context())).await;
    done.map(|output| output.text).map_err(|failure| (failure.error_type().unwrap(), failure.message().to_owned()))
}

#[tokio::test]
async fn pages_become_text() {
    let server = Server::start(|path| match path {
        "/page" => ok("text/html; charset=utf-8", "<html><head><style>x{}</style><script>evil()</script></head><body><h1>Grüße</h1><p>Some <b>words</b>.</p></body></html>"),
        "/latin" => Some(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=\"iso-8859-1\"\r\nConnection: close\r\n\r\ncaf\xe9".to_vec()),
        "/broken" => Some(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\na\xff\xfeb".to_vec()),
        "/data" => ok("application/vnd.api+json", "{\"a\": 1}"),
        "/image" => ok("image/png", "...."),
        _ => Some(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec()),
    })
    .await;
    let tool = tool(&[&server.address], None);
    let at = |path: &str| format!("http://{}{path}", server.address);
    let text = fetch(&tool, &format!("What is at {}?", at("/page"))).await.unwrap();
    assert!(text.contains("Grüße") && text.contains("Some **words**.") && !text.contains("evil"), "{text}");
    let both =
        fetch(&tool, &format!("{} {} {} {}", at("/latin"), at("/data"), at("/broken"), at("/image"))).await.unwrap();
    assert!(both.contains("café") && both.contains("{\"a\": 1}") && both.contains("a\u{fffd}\u{fffd}b"), "{both}");
    assert!(both.ends_with(&format!("Not read:\n{}: it is no text (image/png)", at("/image"))), "{both}");
    let (kind, message) = fetch(&tool, &at("/nope")).await.unwrap_err();
    assert_eq!(kind, ErrorType::WebFetchFallbackFailed);
    assert!(message.contains("404"), "{message}");
}

#[tokio::test]
async fn private_addresses_are_out_of_reach_at_every_hop() {
    let secret = Server::start(|_| ok("text/plain", "secret")).await;
    let port = secret.address.rsplit(':').next().unwrap().to_owned();
    let (direct, by_name, twice) = (secret.address.clone(), format!("localhost:{port}"), secret.address.clone());
    let open = Server::start(move |path| match path {
        "/direct" => redirect(&format!("http://{direct}/")),
        "/by-name" => redirect(&format!("http://{by_name}/")),
        "/metadata" => redirect("http://169.254.169.254/latest/meta-data/"),
        "/file" => redirect("file:///etc/passwd"),
        "/twice" => redirect("/direct"),
        "/loop" => redirect("/loop"),
        "/nowhere" => Some(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec()),
        "/fine" => redirect("/end"),
        _ => ok("text/plain", &format!("the end, not {twice}")),
    })
    .await;
    let tool = tool(&[&open.address], None);
    let at = |path: &str| format!("http://{}{path}", open.address);
    for blocked in
        [format!("http://{}/", secret.address), format!("http://localhost:{port}/"), "http://10.0.0.1/".to_owned()]
    {
        let (kind, message) = fetch(&tool, &blocked).await.unwrap_err();
        assert_eq!(kind, ErrorType::WebFetchProcessingError, "{blocked}");
        assert!(message.contains("private network"), "{message}");
    }
    for (path, words) in [
        ("/direct", "private network"),
        ("/by-name", "private network"),
        ("/metadata", "private network"),
        ("/twice", "private network"),
        ("/file", "not an address of the web"),
        ("/loop", "more than 5 times"),
        ("/nowhere", "redirects to nowhere"),
    ] {
        // A tool of its own: `/loop` alone would use up what a host gets in a minute.
        let (kind, message) = fetch(&self::tool(&[&open.address], None), &at(path)).await.unwrap_err();
        assert_eq!(kind, ErrorType::WebFetchFallbackFailed);
        assert!(message.contains(words), "{path}: {message}");
    }
    assert_eq!(secret.hits(), 0, "nothing of it reached the private server");
    assert!(fetch(&tool, &at("/fine")).await.unwrap().contains("the end"));
}

#[tokio::test]
async fn a_server_that_says_nothing_is_not_waited_for() {
    let server = Server::start(|_| None).await;
    let tool = WebFetch::new(WebOptions {
        allowed_private_hosts: vec![server.address.clone()],
        time_max: Duration::from_millis(100),
        ..WebOptions::default()
    });
    let (kind, message) = fetch(&tool, &format!("http://{}/", server.address)).await.unwrap_err();
    assert_eq!(kind, ErrorType::WebFetchFallbackFailed);
    assert!(message.contains("longer than 100 ms") || message.contains("did not answer"), "{message}");
}

#[tokio::test]
async fn huge_pages_are_cut() {
    let server = Server::start(|path| match path {
        "/huge" => ok("text/plain", &"x".repeat(4 << 20)),
        "/deep" => ok("text/html", &format!("{}deep", "<div>".repeat(20_000))),
        _ => ok("text/plain", &"y".repeat(200_000)),
    })
    .await;
    let tool = tool(&[&server.address], None);
    let at = |path: &str| format!("http://{}{path}", server.address);
    let text = fetch(&tool, &at("/huge")).await.unwrap();
    assert_eq!(text.matches('x').count(), CHARS_MAX);
    assert!(text.contains("[The page is longer than this.]"));
    let two = fetch(&tool, &format!("{} {}", at("/a"), at("/b"))).await.unwrap();
    assert!(two.matches('y').count() <= CHARS_MAX + 20, "the bound is shared");
    assert!(fetch(&tool, &at("/deep")).await.unwrap().contains("deep"));
}

#[tokio::test]
async fn a_host_is_asked_ten_times_a_minute() {
    let server = Server::start(|_| ok("text/plain", "ok")).await;
    let tool = tool(&[&server.address], None);
    let prompt: String = (0..12).map(|page| format!("http://{}/{page} ", server.address)).collect();
    let text = fetch(&tool, &prompt).await.unwrap();
    assert_eq!((server.hits(), text.matches("Rate limit exceeded").count()), (10, 2), "{text}");
    let (kind, _) = fetch(&tool, &prompt).await.unwrap_err();
    assert_eq!((kind, server.hits()), (ErrorType::WebFetchProcessingError, 10));
}

#[tokio::test]
async fn a_model_that_reads_pages_is_asked_first() {
    let url = "https://8.8.8.8/page";
    let grounding = json!({
        "groundingChunks": [{"web": {"uri": url, "title": "Page"}}],
        "groundingSupports": [{"segment": {"endIndex": 4}, "groundingChunkIndices": [0]}],
    });
    let seen = json!({"urlMetadata": [{"retrievedUrl": url, "urlRetrievalStatus": "URL_RETRIEVAL_STATUS_SUCCESS"}]});
    let oracle = Oracle::saying([Ok(("Fine", grounding, seen))]);
    let prompt = format!("Summarise {url}");
    let text = fetch(&tool(&[], Some(oracle.clone())), &prompt).await.unwrap();
    assert_eq!(text, format!("Fine[1]\n\nSources:\n[1] Page ({url})"));
    assert_eq!(oracle.asked(), [(WebTask::ReadPages, prompt)]);
}

#[tokio::test]
async fn what_a_model_could_not_read_is_fetched_and_digested() {
    let server = Server::start(|_| ok("text/plain", "the page itself")).await;
    let prompt = format!("Summarise http://{}/", server.address);
    // The host is private: no other server is told of it.
    let oracle = Oracle::saying([Ok(("In short.", Value::Null, Value::Null)), Err("busy")]);
    let tool = tool(&[&server.address], Some(oracle.clone()));
    assert_eq!(fetch(&tool, &prompt).await.unwrap(), "In short.");
    let [(task, digest)] = &oracle.asked()[..] else { panic!("one question") };
    assert_eq!(*task, WebTask::Digest);
    assert!(digest.starts_with(&prompt) && digest.contains("the page itself"), "{digest}");
    // A digest that fails leaves the text.
    assert!(fetch(&tool, &prompt).await.unwrap().contains("the page itself"));
    assert!(!was_read(&Grounded { text: " ".into(), ..Grounded::default() }));
    let failed = json!({"urlMetadata": [{"urlRetrievalStatus": "URL_RETRIEVAL_STATUS_ERROR"}]});
    assert!(!was_read(&Grounded { text: "I can't".into(), grounding: Value::Null, pages: failed }));
}

#[tokio::test]
async fn prompts_are_checked_before_anybody_is_asked() {
    let tool = tool(&[], None);
    for (prompt, kind) in [
        ("no address".to_owned(), ErrorType::WebFetchNoUrlInPrompt),
        ("ftp://a.example/".to_owned(), ErrorType::InvalidToolParams),
        ((0..21).map(|page| format!("https://a.example/{page} ")).collect(), ErrorType::InvalidToolParams),
    ] {
        assert_eq!(tool.build(&json!({"prompt": prompt})).err().unwrap().error_type(), Some(kind), "{prompt}");
    }
    let call = tool.build(&json!({"prompt": "see https://github.com/o/r/blob/main/x"})).unwrap();
    assert_eq!(call.description(), "https://github.com/o/r/blob/main/x");
    let ConfirmationDetails::Info { prompt } = call.confirmation().await.unwrap() else { panic!("an info") };
    assert!(prompt.ends_with("https://raw.githubusercontent.com/o/r/main/x"), "{prompt}");
}

#[tokio::test]
async fn one_address_gives_what_is_there_as_it_is() {
    const PNG: &[u8] = b"\x89PNG\r\n\x1a\nrest";
    let server = Server::start(|path| match path {
        "/page" => ok("text/html", "<p>Some <b>words</b>.</p><script>evil()</script>"),
        "/picture" => Some([b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nConnection: close\r\n\r\n", PNG].concat()),
        "/huge" => Some(
            [&b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nConnection: close\r\n\r\n"[..], PNG, &vec![0; 3 << 20]]
                .concat(),
        ),
        "/program" => ok("application/octet-stream", "\u{7f}ELF"),
        "/away" => redirect("http://169.254.169.254/latest"),
        _ => None,
    })
    .await;
    let options = |allowed: &[&String]| WebOptions {
        allowed_private_hosts: allowed.iter().map(|host| (*host).clone()).collect(),
        direct: true,
        // It is asked for nothing.
        model: Some(Oracle::saying([]) as Arc<dyn WebModel>),
        ..WebOptions::default()
    };
    let direct = WebFetch::new(options(&[&server.address]));
    assert_eq!(direct.declaration("m").parameters["required"], json!(["url"]));
    let at = |path: &str| json!({"url": format!("http://{}{path}", server.address)});
    let get = async |tool: &WebFetch, args: Value| within(tool.build(&args).unwrap().execute(&context())).await;
    let page = get(&direct, at("/page")).await.unwrap();
    assert!(page.text.contains("Some **words**.") && !page.text.contains("evil"), "{}", page.text);
    let picture = get(&direct, at("/picture")).await.unwrap();
    assert_eq!(picture.parts, [convoke_adk::Part::inline_data("image/png", "iVBORw0KGgpyZXN0")]);
    for (path, why) in [("/huge", "larger than"), ("/program", "it is no text"), ("/away", "169.254.169.254")] {
        let failure = get(&direct, at(path)).await.unwrap_err();
        assert!(failure.message().contains(why), "{path}: {failure}");
    }
    // Nobody named this machine.
    let failure = get(&WebFetch::new(options(&[])), at("/page")).await.unwrap_err();
    assert_eq!(failure.error_type(), Some(ErrorType::WebFetchProcessingError), "{failure}");
    for url in ["", "ftp://a.example", "a.example/x"] {
        assert_eq!(
            direct.build(&json!({"url": url})).err().unwrap().error_type(),
            Some(ErrorType::InvalidToolParams),
            "{url}"
        );
    }
    assert!(direct.build(&json!({"prompt": "https://a.example"})).is_err());
}
