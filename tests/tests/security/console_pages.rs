//! Pages of the console: their compression, and what open pages get and cost. The table has their status and headers.

use ebb_engine::RunPhase;
use reqwest::header;

use super::changes::Watcher;
use crate::harness::*;

/// The page of the sandbox of these tests.
const TARGET: &str = "/console/targets/sandbox/a";

/// A compressed page has the tag of the same page without compression, and another form token. A secret is not compressed.
pub(crate) async fn responses_are_compressed() {
    let harness = at_rest().await;
    let browser = Browser::signed_in(harness.stack().url(), harness.stack().token()).await;
    let compressed = async |request: reqwest::RequestBuilder| {
        let request = request.header(header::ACCEPT_ENCODING, "br, gzip");
        let response = request.header(header::COOKIE, &browser.cookie).send().await.unwrap();
        let headers = response.headers().clone();
        (headers, response.bytes().await.unwrap())
    };
    let get = async |path: &str| compressed(browser.http.get(format!("{}{path}", browser.base))).await;
    let inflated = |bytes: &[u8]| {
        assert_eq!(bytes[..10], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, bytes[8], 255], "no header of gzip");
        String::from_utf8(miniz_oxide::inflate::decompress_to_vec(&bytes[10..]).unwrap()).unwrap()
    };
    let page = browser.get(TARGET).await;
    let (headers, bytes) = get(TARGET).await;
    assert!(headers["content-encoding"] == "gzip" && headers["vary"] == "accept-encoding", "{headers:?}");
    assert_eq!((page.header("etag"), page.header("content-encoding")), (headers["etag"].to_str().unwrap(), ""));
    assert!(bytes.len() * 2 < page.body.len(), "{} of {} bytes", bytes.len(), page.body.len());
    let (form, text) = (page.field("form"), inflated(&bytes));
    assert!(text.contains("sandbox/a") && !text.contains(&form) && text.len() == page.body.len(), "{text}");
    assert_eq!(browser.again(TARGET, page.header("etag")).await.status, 304);
    for path in [page.body.split('"').find(|part| part.ends_with(".css")).unwrap(), "/v1/openapi.json"] {
        let (headers, bytes) = get(path).await;
        assert!(headers["content-encoding"] == "gzip" && inflated(&bytes).len() > 2 * bytes.len(), "{path}");
    }
    let scopes: Vec<String> =
        (0..50).map(|number| format!("plugins:write:a-plugin-with-a-long-name-{number}")).collect();
    let url = format!("{}/v1/tokens", browser.base);
    let request = browser.http.post(url).bearer_auth(harness.stack().token());
    let (headers, bytes) = compressed(request.json(&json!({"name": "long", "scopes": scopes}))).await;
    assert!(bytes.len() > 2_000 && bytes.starts_with(b"{") && !headers.contains_key("content-encoding"), "{headers:?}");
}

#[track_caller]
fn attribute(page: &ApiReply, name: &str) -> String {
    let (_, rest) = page.is(200).body.split_once(&format!("{name}=\"")).expect("the page has the attribute");
    rest.split('"').next().unwrap().to_owned()
}

/// Starts a stack with the ready sandbox `a`, and waits until its setup is closed.
async fn at_rest() -> Harness {
    let harness = Harness::simple().await;
    harness.ready("a", "simple").await;
    harness.notification_accepted("a").await;
    until("the end of the run", async || {
        let head = harness.state("a", Hook::PreStart).await.head?;
        (head.phase == RunPhase::Closed).then_some(())
    })
    .await;
    harness
}

/// A question costs at most a read unit, one for the session, and one for its token.
pub(crate) async fn an_open_page_without_news_costs_little() {
    const POLLS: u32 = 20;
    const LEAST: f64 = 2.0 * POLLS as f64;
    const MOST: f64 = 3.0 * POLLS as f64;
    let harness = at_rest().await;
    let token = harness.token("viewer", &["read"]).await;
    let watcher = Watcher::start(&harness).await;
    let browser = Browser::signed_in(&watcher.url, &token).await;
    browser.get("/console").await.is(200);
    watcher.clock.advance(15_000);
    for path in ["/console", "/console/targets"] {
        let since = attribute(&browser.get(path).await, "data-since");
        watcher.meter.take();
        for _ in 0..POLLS {
            watcher.clock.advance(5_000);
            let answer = browser.get(&format!("/console/changes?since={since}")).await;
            let answer: Value = serde_json::from_str(&answer.is(200).body).unwrap();
            assert_eq!(answer, json!({"seq": since, "reload": false, "targets": []}));
        }
        let usage = watcher.meter.take();
        assert!((LEAST..=MOST).contains(&usage.read_units), "{path}: {usage:?}");
    }
    let page = browser.get(TARGET).await;
    let stamp = format!("W/\"{}.\"", attribute(&page, "data-stamp"));
    watcher.meter.take();
    for tag in [page.header("etag"), stamp.as_str()].into_iter().cycle().take(20) {
        watcher.clock.advance(15_000);
        assert_eq!(browser.again(TARGET, tag).await.is(304).header("etag"), tag);
    }
    let usage = watcher.meter.take();
    assert!((LEAST..=MOST).contains(&usage.read_units), "{usage:?}");
    // Without the stamp, the page is rendered. The rest of its tag shows that it is the same.
    let content = page.header("etag").split_once('.').map(|(_, content)| format!("\"{content}")).unwrap();
    browser.again(TARGET, &content).await.is(304);
    assert!(watcher.meter.take().read_units > 3.0);
    let token = harness.token("other", &["read", "targets:write"]).await;
    let other = Browser::signed_in(&watcher.url, &token).await;
    // Each session is checked before it gets a page. What the page of a list or of a target shows is read once a second.
    for path in ["/console", "/console/targets", TARGET] {
        let mut costs = Vec::new();
        for count in [1, 40] {
            watcher.clock.advance(1_500);
            watcher.meter.take();
            for browser in [&browser, &other].into_iter().cycle().take(count) {
                browser.again(path, "\"none.\"").await.is(200);
            }
            costs.push(watcher.meter.take().read_units);
        }
        assert!(costs[1] <= costs[0] + 2.0 * 39.0, "{path}: {costs:?}");
    }
    // What is read for the filter `me` is that of one caller.
    harness.with_token(&token, "POST /v1/targets", Some(simple_request("mine", ""))).await.is(202);
    watcher.clock.advance(1_500);
    for (browser, is_shown) in [(&other, true), (&browser, false), (&other, true)] {
        let page = browser.again("/console/targets?owner=me", "\"none.\"").await;
        assert_eq!(page.is(200).body.contains("sandbox/mine"), is_shown, "{page:?}");
    }
}

/// Open pages get news also after the clock was set back, and nothing after the end of their session.
pub(crate) async fn an_ended_session_gets_no_news() {
    let harness = at_rest().await;
    let token = harness.token("ci", &["read"]).await;
    let watcher = Watcher::start(&harness).await;
    let browser = Browser::signed_in(&watcher.url, &token).await;
    let mut open = Vec::new();
    for path in ["/console", "/console/targets", TARGET] {
        let tag = browser.get(path).await.is(200).header("etag").to_owned();
        for known in [tag.clone(), tag.replace("W/", ""), format!("\"x\", {tag}")] {
            let same = browser.again(path, &known).await;
            assert!(same.is(304).body.is_empty() && same.header("etag") == tag, "{same:?}");
        }
        open.push((path, tag));
    }
    watcher.clock.turn_back(3_600_000);
    harness.delete("a").await;
    harness.phase("a", TargetPhase::Gone).await;
    watcher.clock.advance(1_500);
    for (path, tag) in &mut open {
        *tag = browser.again(path, tag).await.is(200).header("etag").to_owned();
    }
    harness.request(Method::DELETE, "/v1/tokens/ci", None).await.is(204);
    browser.get("/console/changes?since=0").await.is(303);
    for (path, tag) in open {
        let next = path.replace('/', "%2F");
        browser.again(path, &tag).await.leads_to(&format!("/console/sign-in?next={next}"));
    }
}
