//! The picture of the console in README.md and in the book: the page of a failed target as an SVG, in light and in dark.
//!
//! `tests/failed-target.json` has the answers of `GET /v1/targets/sandbox/billing-pr-8` and of its `/why`. The sandbox has
//! the plugins of `tests/examples/postgres` and `tests/examples/s3`, and there is no PostgreSQL server.
//! `INSTA_UPDATE=always cargo test -p ebb-console picture` writes the pictures.

#![allow(clippy::disallowed_methods, reason = "the test reads and writes files")]

use std::path::PathBuf;

use ebb_protocol::Timestamp;
use ebb_protocol::api::{TargetDetail, TargetDiagnosis};
use serde_json::Value;
use xmlparser::{ElementEnd, Token, Tokenizer};

use super::VIEWER;
use crate::{TargetView, assets, target};

/// The size of the picture in pixels. The page continues below it.
const WIDTH: u32 = 1_000;
const HEIGHT: u32 = 960;

/// Leaves what does not fit out, such as the values so far. Some browsers draw parts that scroll at a wrong place of a picture.
const SHORTER: &str = "\
:root { background: var(--back); }
.skip, .result { display: none; }
.wide, .listing { overflow: visible; }
header { height: 100%; }
";

/// Returns the style of the pages for one colour scheme. A picture is no window, so no other rule depends on its width.
fn style(scheme: &str) -> String {
    let [style, ..] = assets::all();
    let style = style.content.replace("color-scheme: light dark", &format!("color-scheme: {scheme}"));
    let style = style.replace("(width >= 900px)", "all");
    let others = ["< 640px", ">= 1100px", ">= 1280px"].map(|other| format!("(width {other})"));
    let style = others.iter().fold(style, |style, other| style.replace(other, "not all"));
    assert!(!style.contains("(width") && !style.contains("light dark"));
    style
}

/// Returns HTML of a page as XML: fields have an end, attributes have a value, and rows have a namespace.
fn as_xml(html: &str) -> String {
    let parts = html.split_inclusive('>').map(|part| match part.rsplit_once('<') {
        Some((text, tag)) if tag.starts_with("input ") => format!("{text}<{}/>", tag.trim_end_matches('>')),
        _ => part.to_owned(),
    });
    let xml =
        parts.collect::<String>().replace(" open>", " open=\"open\">").replace(" hidden data-", " hidden=\"\" data-");
    let xml = xml.replace("<svg xmlns=\"http://www.w3.org/2000/svg\" ", "<svg ");
    xml.replace("<svg ", "<svg xmlns=\"http://www.w3.org/2000/svg\" ").replace("><", ">\n<")
}

fn picture(page: &str, scheme: &str) -> String {
    let (_, body) = page.split_once("<body>").unwrap();
    let (body, _) = body.split_once("</body>").unwrap();
    let (style, body) = (style(scheme), as_xml(body));
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-labelledby="picture-title">
<title id="picture-title">The page of a failed sandbox in the console of Ebb, shortened</title>
<style>
{style}{SHORTER}</style>
<foreignObject width="{WIDTH}" height="{HEIGHT}">
<body xmlns="http://www.w3.org/1999/xhtml">
{body}
</body>
</foreignObject>
</svg>
"#
    )
}

/// Returns the number of elements without an end.
#[track_caller]
fn unclosed(xml: &str) -> i32 {
    Tokenizer::from(xml).fold(0, |open, token| match token.unwrap() {
        Token::ElementEnd { end: ElementEnd::Open, .. } => open + 1,
        Token::ElementEnd { end: ElementEnd::Close(..), .. } => open - 1,
        _ => open,
    })
}

#[test]
fn the_picture_has_the_page_of_a_target() {
    let recorded: Value = serde_json::from_str(include_str!("../../tests/failed-target.json")).unwrap();
    let detail: TargetDetail = serde_json::from_value(recorded["target"].clone()).unwrap();
    let why: TargetDiagnosis = serde_json::from_value(recorded["why"].clone()).unwrap();
    let now = Timestamp(0);
    let page =
        TargetView { detail: &detail, why: &why, may_change: true, may_override: true, stamp: "", now, selected: None };
    let page = target(VIEWER, &page);
    for scheme in ["light", "dark"] {
        let picture = picture(&page, scheme);
        assert_eq!(unclosed(&picture), 0);
        let name = format!("docs/src/pictures/console-{scheme}.svg");
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(&name);
        if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
            std::fs::write(&file, picture).unwrap();
        } else {
            let shown = std::fs::read_to_string(&file).unwrap();
            assert!(shown == picture, "{name} is out of date: INSTA_UPDATE=always cargo test -p ebb-console picture");
        }
    }
}
