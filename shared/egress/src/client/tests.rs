//! Tests over real sockets on loopback.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::http::Uri;
use axum::routing::{any, get};
use reqwest::dns::{Addrs, Name, Resolving};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

fn request(method: &str, url: String) -> HttpRequest {
    HttpRequest::new(method, url, Vec::new(), Vec::new(), Duration::from_secs(5))
}

fn local() -> HttpClient {
    HttpClient::new(Policy::with_loopback()).unwrap()
}

/// Returns the status and the cause of a request without a usable response.
fn failed<T: std::fmt::Debug>(result: CallResult<T>) -> (Option<u16>, CallError) {
    match result.unwrap_err() {
        CallError::Unread(head, cause) => (Some(head.status), *cause),
        error => (None, error),
    }
}

async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// Starts a server with scripted connections, for responses that no HTTP library would send.
async fn serve_raw<F, R>(each: F) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Fn(TcpStream) -> R + Send + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(each(stream));
        }
    });
    (address, count)
}

/// Starts a server that reads each request, sends this response and closes the connection.
async fn serve_bytes(response: &'static [u8]) -> (SocketAddr, Arc<AtomicUsize>) {
    serve_raw(move |mut stream| async move {
        read_head(&mut stream).await;
        stream.write_all(response).await.unwrap();
    })
    .await
}

async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = vec![0; 4096];
    let length = stream.read(&mut head).await.unwrap();
    String::from_utf8_lossy(&head[..length]).into_owned()
}

/// Resolves every name to fixed addresses.
struct StaticResolver(Vec<IpAddr>, AtomicUsize);

impl StaticResolver {
    fn to(addresses: &[impl AsRef<str>]) -> Arc<Self> {
        let addresses = addresses.iter().map(|address| address.as_ref().parse().unwrap());
        Arc::new(Self(addresses.collect(), AtomicUsize::new(0)))
    }
}

impl Resolve for StaticResolver {
    fn resolve(&self, _: Name) -> Resolving {
        self.1.fetch_add(1, Ordering::SeqCst);
        let found: Vec<SocketAddr> = self.0.iter().map(|address| SocketAddr::new(*address, 0)).collect();
        Box::pin(async move { Ok(Box::new(found.into_iter()) as Addrs) })
    }
}

#[tokio::test]
async fn method_headers_and_body_arrive_as_given() {
    let echo = |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| async move {
        let mut lines: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        (http::StatusCode::CREATED, [("x-made", "yes")], format!("{method} {uri}\n{}\n{body:?}", lines.join("\n")))
    };
    let address = serve(Router::new().fallback(any(echo))).await;
    let mut given = request("PATCH", format!("http://{address}/a%20b?c=d#e"));
    given.headers = vec![("x-one".to_owned(), "1".to_owned()), ("authorization".to_owned(), "Bearer t".to_owned())];
    given.body = b"\xff\0body".to_vec();
    let response = local().call(given).await.unwrap();
    assert_eq!(response.status, 201);
    assert!(response.headers.contains(&("x-made".to_owned(), "yes".to_owned())));
    let report = String::from_utf8(response.body).unwrap().replace(&address.to_string(), "HOST");
    insta::assert_snapshot!(report);
}

/// Cookies are not stored either.
#[tokio::test]
async fn redirects_are_not_followed() {
    let moved = |headers: HeaderMap| async move {
        let to = [("location", "/elsewhere"), ("set-cookie", "a=b")];
        (http::StatusCode::FOUND, to, headers.contains_key("cookie").to_string())
    };
    let router = Router::new().route("/", any(moved)).route("/elsewhere", any(|| async { "followed" }));
    let (address, client) = (serve(router).await, local());
    for _ in 0..2 {
        let response = client.call(request("GET", format!("http://{address}/"))).await.unwrap();
        assert_eq!((response.status, response.body.as_slice()), (302, b"false".as_slice()));
        assert!(response.headers.contains(&("location".to_owned(), "/elsewhere".to_owned())));
    }
}

#[tokio::test]
async fn bodies_are_limited() {
    let sized = |uri: Uri| async move { vec![b'x'; uri.path()[1..].parse().unwrap()] };
    let address = serve(Router::new().fallback(get(sized))).await;
    let of = async |size: usize| local().call(request("GET", format!("http://{address}/{size}"))).await;
    assert_eq!(of(limits::RESPONSE_BODY).await.unwrap().body.len(), limits::RESPONSE_BODY);
    let too_large = CallError::TooLarge(limits::RESPONSE_BODY);
    assert_eq!(failed(of(limits::RESPONSE_BODY + 1).await), (Some(200), too_large));
    assert!(of(0).await.unwrap().body.is_empty());
    let largest = limits::BATCH_RESPONSE_BODY;
    for (size, fits) in [(largest, true), (largest + 1, false)] {
        let request = HttpRequest { largest, ..request("GET", format!("http://{address}/{size}")) };
        assert_eq!(local().call(request).await.is_ok(), fits, "{size}");
    }
}

/// Large responses share a budget. Small ones, and a server that sends nothing, need none.
#[tokio::test]
async fn large_bodies_wait_for_the_budget() {
    let sized = |uri: Uri| async move { vec![b'x'; uri.path()[1..].parse().unwrap()] };
    let address = serve(Router::new().fallback(get(sized))).await;
    let budget = ByteBudget::new(100_000);
    let client = local();
    let of = async |size: usize, millis: u64| {
        let timeout = Duration::from_millis(millis);
        let request = HttpRequest { timeout, ..request("GET", format!("http://{address}/{size}")) };
        client.call_within(request, &budget).await.map(|(response, permit)| (response.body.len(), permit))
    };
    let (first, permit) = of(60_000, 5_000).await.unwrap();
    assert_eq!(first, 60_000);
    assert_eq!(failed(of(60_000, 300).await), (Some(200), CallError::Timeout(Duration::from_millis(300))));
    assert_eq!(of(16_000, 5_000).await.unwrap().0, 16_000);
    assert_eq!(of(40_000, 5_000).await.unwrap().0, 40_000);
    drop(permit);
    // A body larger than the budget takes all of it.
    assert_eq!(of(200_000, 5_000).await.unwrap().0, 200_000);
}

#[tokio::test]
async fn reading_stops_at_the_limit_of_an_endless_body() {
    static SENT: AtomicUsize = AtomicUsize::new(0);
    let (address, _) = serve_raw(|mut stream| async move {
        read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
        let chunk = [b"10000\r\n".as_slice(), &[b'x'; 0x10000], b"\r\n"].concat();
        while stream.write_all(&chunk).await.is_ok() {
            SENT.fetch_add(0x10000, Ordering::SeqCst);
        }
    })
    .await;
    let result = local().call(request("GET", format!("http://{address}/"))).await;
    assert_eq!(failed(result), (Some(200), CallError::TooLarge(limits::RESPONSE_BODY)));
    let sent = SENT.load(Ordering::SeqCst);
    // The rest is sent into socket buffers and never read.
    assert!(sent < 16 * limits::RESPONSE_BODY, "{sent}");
}

/// One server sends nothing. The other one sends its body a byte at a time.
#[tokio::test]
async fn the_timeout_covers_head_and_body() {
    let body = "HTTP/1.1 202 Accepted\r\ncontent-length: 1000\r\n\r\n";
    for (head, method, status) in [("", "GET", None), (body, "POST", Some(202))] {
        let (address, _) = serve_raw(move |mut stream| async move {
            read_head(&mut stream).await;
            stream.write_all(head.as_bytes()).await.unwrap();
            while head.is_empty() || stream.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        let timeout = Duration::from_millis(300);
        let started = Instant::now();
        let result = local().call(HttpRequest { timeout, ..request(method, format!("http://{address}/")) }).await;
        assert_eq!(failed(result), (status, CallError::Timeout(timeout)), "{head}");
        assert!(started.elapsed() < Duration::from_secs(2));
    }
}

#[tokio::test]
async fn names_are_checked_by_their_addresses() {
    let (address, count) = serve_raw(|_| async {}).await;
    // The host, the addresses of its name, and a part of the refusal, or of the error of a connection. Addresses in URLs are
    // not looked up.
    let rows: Vec<(String, Vec<String>, Result<String, String>)> =
        serde_json::from_str(include_str!("../../tests/resolved_names.json")).unwrap();
    for (host, leads_to, expected) in rows {
        let client = HttpClient::with_resolver(Policy::public(), StaticResolver::to(&leads_to)).unwrap();
        let error = client.call(request("GET", format!("http://{host}:{}/", address.port()))).await.unwrap_err();
        match (&error, expected) {
            (CallError::Refused(text), Err(part)) | (CallError::NoConnection(text), Ok(part)) => {
                assert!(text.contains(&part), "{host}: {text}");
            }
            _ => panic!("{host}: {error:?}"),
        }
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn the_connection_uses_the_checked_address() {
    let address = serve(Router::new().route("/", get(|| async { "here" }))).await;
    let url = format!("http://name.example:{}/", address.port());
    // Of several addresses, only allowed ones are connected.
    let resolver = StaticResolver::to(&["10.255.255.1", "127.0.0.1"]);
    let client = HttpClient::with_resolver(Policy::with_loopback(), Arc::clone(&resolver) as Arc<dyn Resolve>).unwrap();
    assert_eq!(client.call(request("GET", url)).await.unwrap().body, b"here");
    // There is only one lookup: the checked addresses are those of the connection.
    assert_eq!(resolver.1.load(Ordering::SeqCst), 1);
}

/// The connection gets only the addresses that the policy allows for the name, from one lookup.
#[tokio::test]
async fn an_allowed_name_opens_its_private_addresses_only() {
    let policy = Arc::new(Policy::public().and_receivers("hooks.internal").unwrap());
    for (name, expected) in [("hooks.internal", "10.1.2.3 1.1.1.1"), ("other.internal", "1.1.1.1")] {
        let inner = StaticResolver::to(&["169.254.169.254", "10.1.2.3", "127.0.0.1", "fd00:ec2::254", "1.1.1.1"]);
        let resolver = GuardedResolver { policy: Arc::clone(&policy), inner: Arc::clone(&inner) as Arc<dyn Resolve> };
        let found = resolver.resolve(name.parse().unwrap()).await.unwrap();
        let found: Vec<String> = found.map(|address| address.ip().to_string()).collect();
        assert_eq!((found.join(" ").as_str(), inner.1.load(Ordering::SeqCst)), (expected, 1));
    }
}

#[tokio::test]
async fn addresses_of_the_system_resolver_are_checked() {
    let address = serve(Router::new().route("/", get(|| async { "inside" }))).await;
    let url = |name: &str| format!("http://{name}:{}/", address.port());
    let public = HttpClient::new(Policy::public()).unwrap();
    for name in ["localhost", "LOCALHOST", "localhost."] {
        let error = public.call(request("GET", url(name))).await.unwrap_err();
        let refused = matches!(&error, CallError::Refused(text) if text.contains("loopback"));
        // Some machines resolve no name with a full stop at its end.
        assert!(refused || (name.ends_with('.') && matches!(error, CallError::NoConnection(_))), "{name}: {error:?}");
    }
    assert_eq!(local().call(request("GET", url("localhost"))).await.unwrap().body, b"inside");
}

#[tokio::test]
async fn ambiguous_requests_are_rejected() {
    let mut report = String::new();
    let (address, count) = serve_raw(|_| async {}).await;
    let rows: Vec<[String; 3]> = serde_json::from_str(include_str!("../../tests/ambiguous_requests.json")).unwrap();
    for [method, name, value] in rows {
        let mut given = request(&method, format!("http://{address}/"));
        given.headers.push((name.clone(), value));
        let CallError::Refused(text) = local().call(given).await.unwrap_err() else { panic!("{method} {name}") };
        assert!(!text.contains("secret"), "{text}");
        report.push_str(&format!("{method:?} {name:?}\n  {text}\n"));
    }
    insta::assert_snapshot!(report);
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_failed_connection_is_retried_for_less_than_a_second() {
    let resolver = StaticResolver::to(&["127.0.0.1"]);
    let client = HttpClient::with_resolver(Policy::with_loopback(), Arc::clone(&resolver) as Arc<dyn Resolve>).unwrap();
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let started = Instant::now();
    let error = client.call(request("POST", format!("http://a.example:{free}/?token=hidden"))).await.unwrap_err();
    // The waits end within a second. The rest is a margin for a busy machine.
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    let CallError::NoConnection(text) = error else { panic!("{error:?}") };
    assert_eq!(text, format!("connection refused: nothing listens at a.example:{free}"));
    let attempts = resolver.1.load(Ordering::SeqCst);
    assert!((2..=1 + RETRIES).contains(&attempts), "{attempts}");
}

#[tokio::test]
async fn a_server_that_starts_during_the_retries_is_reached() {
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(30)).await;
        let listener = TcpListener::bind(address).await.unwrap();
        axum::serve(listener, Router::new().route("/", any(|| async { "up" }))).await
    });
    let response = local().call(request("POST", format!("http://{address}/"))).await.unwrap();
    assert_eq!(response.body, b"up");
}

#[tokio::test]
async fn a_request_that_may_have_arrived_is_repeated_only_with_a_safe_method() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort";
    for (methods, response, status) in
        [("POST PUT DELETE GET", "", None), ("POST", "SSH-2.0-OpenSSH_9.6\r\n", None), ("POST GET", cut, Some(200))]
    {
        for method in methods.split(' ') {
            let (address, count) = serve_bytes(response.as_bytes()).await;
            let mut given = request(method, format!("http://{address}/"));
            given.headers.push(("idempotency-key".to_owned(), "k".to_owned()));
            let found = failed(local().call(given).await);
            assert!(found.0 == status && matches!(found.1, CallError::Connect(_)), "{response:?}: {found:?}");
            assert_eq!(count.load(Ordering::SeqCst) > 1, method == "GET", "{method}");
        }
    }
}

#[tokio::test]
async fn headers_that_are_not_text_are_dropped() {
    let (address, _) =
        serve_bytes(b"HTTP/1.1 200 OK\r\nX-Bin: \xff\xfe\r\nX-Text: a\r\ncontent-length: 0\r\n\r\n").await;
    let response = local().call(request("GET", format!("http://{address}/"))).await.unwrap();
    let names: Vec<&str> = response.headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["x-text", "content-length"]);
}

#[tokio::test]
async fn a_closed_idle_connection_is_replaced() {
    let (address, count) = serve_raw(|mut stream| async move {
        read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        // The headers keep the connection open. The server closes it while it is idle.
        tokio::time::sleep(Duration::from_millis(30)).await;
    })
    .await;
    let client = local();
    for _ in 0..3 {
        let response = client.call(request("POST", format!("http://{address}/"))).await.unwrap();
        assert_eq!(response.body, b"ok");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn nothing_is_sent_before_the_tls_handshake() {
    static RECEIVED: Mutex<String> = Mutex::new(String::new());
    let (address, count) = serve_raw(|mut stream| async move {
        let hello = read_head(&mut stream).await;
        RECEIVED.lock().unwrap().push_str(&hello);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    })
    .await;
    let mut given = request("POST", format!("https://localhost:{}/path", address.port()));
    given.headers = vec![("authorization".to_owned(), "Bearer token".to_owned())];
    let error = local().call(given).await.unwrap_err();
    assert!(matches!(error, CallError::NoConnection(_)), "{error:?}");
    assert!(count.load(Ordering::SeqCst) > 0);
    let received = RECEIVED.lock().unwrap();
    assert!(!received.contains("/path") && !received.contains("token"), "{received}");
}

#[tokio::test]
async fn nothing_is_sent_with_a_certificate_that_is_none() {
    let key = "-----BEGIN PRIVATE KEY-----\nY2FuYXJ5\n-----END PRIVATE KEY-----\n";
    let unparsed = format!("{key}-----BEGIN CERTIFICATE-----\nY2FuYXJ5\n-----END CERTIFICATE-----\n");
    assert!(!is_client_certificate(key) && is_client_certificate(&unparsed));
    for pem in ["", key, &unparsed] {
        let (client, budget, request) = (local(), ByteBudget::new(1), request("GET", "http://127.0.0.1:1/".to_owned()));
        let tls = TlsParts { certificate: Some(SecretText::new(pem.to_owned())), ..TlsParts::default() };
        let called = client.call_certified(request, &tls, &budget).await.map(drop);
        let why = "the client certificate with its private key, or `ca`, cannot be used".to_owned();
        assert_eq!(called, Err(CallError::Refused(why)), "{pem}");
    }
}
