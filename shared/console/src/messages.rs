//! The sign-ins, and pages of failures.

use maud::{Markup, html};

use crate::{ConsoleViewer, PageRenewal, frame, paths};

/// Returns the page that leads to one of the issuers, which are URLs with their names for people, or asks for a token. `next` is
/// the page to which the sign-in leads.
/// `problem` is the reason why the last one was refused, with the issuer at which another account may be permitted.
pub fn sign_in(
    deployment: &str,
    next: &str,
    issuers: &[(&str, &str)],
    problem: Option<(&str, Option<&str>)>,
) -> String {
    let shown = |issuer: &str| {
        let name = issuers.iter().find(|(url, _)| *url == issuer).map_or(issuer, |(_, name)| *name);
        name.trim_start_matches("https://").to_owned()
    };
    let was_token = problem.is_some_and(|(_, issuer)| issuer.is_none());
    let main = html! {
        h1 { "Sign in to Ebb" }
        @if let Some((detail, issuer)) = problem {
            p.problem role="alert" { (detail) }
            @if let Some(issuer) = issuer {
                p { a.button href=(paths::sign_in_at(issuer, next, "other")) { "Use another account of " (shown(issuer)) } }
            }
        }
        @for (issuer, _) in issuers { p { a.button.primary href=(paths::sign_in_at(issuer, next, "")) { "Sign in with " (shown(issuer)) } } }
        details open[issuers.is_empty() || was_token] {
            summary { "Use a token" }
            form.sign-in method="post" action=(paths::SIGN_IN) {
                input type="hidden" name="next" value=(next);
                label for="token" { "API token" }
                input #token type="password" name="token" autocomplete="off" required autofocus[issuers.is_empty()];
                button.primary[issuers.is_empty()] { "Sign in" }
            }
            p.note { "An operator creates tokens: " code { "ebb token create NAME --scope read" } ". A server on this machine prints a link that signs in: see the output of " code { "ebb dev" } " or " code { "ebb open" } "." }
        }
        p.note { "A session lasts 8 hours. It ends before that if the token is revoked, or if no rule of the issuer grants a scope any more." }
    };
    frame::bare_page(deployment, "Sign in", &main)
}

pub fn signed_out(deployment: &str) -> String {
    let main = html! {
        h1 { "Signed out" }
        p { "You have signed out of the console. The issuer may still know you. Logins of the command line stay: end them with " code { "ebb logout" } "." }
        p { a.button.primary href=(paths::ROOT) { "Sign in" } }
    };
    frame::bare_page(deployment, "Signed out", &main)
}

/// Returns the page that asks whether a command may act as the viewer. The form returns challenge, state and port of the command.
pub fn login(viewer: ConsoleViewer<'_>, [challenge, state, port]: [&str; 3], scopes: &str) -> String {
    let main = html! {
        h1 { "Sign in the command line" }
        p { "A command " code { "ebb login" } " asks to act as " strong { (viewer.name) } @if let Some(display) = viewer.display { " (" (display) ")" } " for up to 7 days, but no longer than a token with which you have signed in, with the scopes " (scopes) "." }
        p { "Continue only if you have just run it." }
        form.sign-in method="post" action=(paths::LOGIN) {
            (frame::form_token(viewer))
            @for (name, value) in [("challenge", challenge), ("state", state), ("port", port)] { input type="hidden" name=(name) value=(value); }
            button.primary { "Sign in" }
            @if !port.is_empty() { " " button name="answer" value="cancel" { "Cancel" } }
        }
    };
    frame::page(viewer, "", "Sign in the command line", PageRenewal::NEVER, &main)
}

/// Returns the page after [`login`], with the code if a person has to paste it.
pub fn logged_in(viewer: ConsoleViewer<'_>, code: Option<&str>) -> String {
    let main = html! {
        h1 { "Sign in the command line" }
        @if let Some(code) = code {
            p { "Paste this code into the terminal in which you have run " code { "ebb login" } ", within 2 minutes. Send it to no one." }
            input type="text" readonly aria-label="Code" name="code" value=(code);
        } @else { p { "The terminal has the result of the sign-in. You can close this page." } }
    };
    frame::page(viewer, "", "Sign in the command line", PageRenewal::NEVER, &main)
}

/// A failed request.
#[derive(Clone, Copy, Debug, Default)]
pub struct FailureView<'a> {
    pub title: &'a str,
    pub detail: &'a str,
    /// The way to succeed, for people. `None` if the reason names it.
    pub next_step: Option<&'a str>,
    /// The path of the page to which the failed action belongs.
    pub back: Option<&'a str>,
    /// True if the same request for a page can succeed later.
    pub is_temporary: bool,
}

/// Returns the page of a failed request. Without a viewer it has no navigation. `section` is as for each page.
pub fn failure(viewer: Option<ConsoleViewer<'_>>, section: &str, view: FailureView<'_>) -> String {
    let FailureView { title, detail, next_step, back, is_temporary } = view;
    let main: Markup = html! {
        h1 { (title) }
        @for line in detail.lines() { p { (line) } }
        @if let Some(next_step) = next_step { p { (next_step) } }
        p.actions { @if let Some(back) = back { a.button href=(back) { "Back" } } a.button href=(paths::ROOT) { "Start page" } }
    };
    let renewal = if is_temporary { PageRenewal::every(15) } else { PageRenewal::NEVER };
    match viewer {
        Some(viewer) => frame::page(viewer, section, title, renewal, &main),
        None => frame::bare_page("", title, &main),
    }
}
