//! `ebb login`, `ebb logout` and `ebb whoami`: a person at the server.
//!
//! A page of the console gives the person a code, which the command exchanges for a token. On this machine, the browser brings the
//! code to a port of the command.

use std::collections::BTreeMap;
use std::future::IntoFuture as _;
use std::io::{IsTerminal as _, stdin, stdout};
use std::net::Ipv4Addr;
use std::time::Duration;

use axum::Router;
use axum::extract::Query;
use axum::http::StatusCode;
use axum::routing::get;
use ebb_protocol::{CallerInfo, CreateLogin, CreatedToken, SessionId, code_challenge, limits, rfc3339};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::open::in_browser;
use crate::logins::StoredLogin;
use crate::{
    ApiClient, CliError, Exit, OutputArgs, Result, ServerAccess, ServerArgs, is_local, logins, output, timing,
};

#[derive(Debug, clap::Args)]
pub(crate) struct LoginArgs {
    /// Name or URL of the issuer; by default, the page uses the session of the browser
    #[arg(long, value_name = "NAME")]
    issuer: Option<String>,
    /// Ask for the code of the page, whose browser can be on any device
    #[arg(long)]
    device: bool,
    /// List the logins of this machine
    #[arg(long, conflicts_with_all = ["issuer", "device"])]
    list: bool,
}

impl LoginArgs {
    pub(super) async fn run(self, server: &ServerArgs) -> Result<Exit> {
        if self.list {
            return list();
        }
        let access = server.without_login()?;
        let mut page = access.url.clone();
        if page.scheme() != "https" && !is_local(&page) {
            return Err(CliError::failed(format!("{page} is not https: others could read the token on its way")));
        }
        if page.path() != "/" {
            let error = CliError::failed(format!("{page} has a path, and the console has none"));
            return Err(error.with_hint("use the URL of the server without a path"));
        }
        // The token of another server stays here. A file that cannot be used is an error before a person approves.
        let client = ApiClient::new(ServerAccess { token: None, has_given_token: false, ..access })?;
        logins::find(&client.server.login_name(), false)?;
        let (verifier, state) = (SessionId::issue(rand::random()), SessionId::issue(rand::random()));
        page.set_path("/console/login");
        let challenge = code_challenge(verifier.reveal());
        page.query_pairs_mut().append_pair("challenge", &challenge).append_pair("state", state.reveal());
        let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let bound = bound.and_then(|listener| Ok((listener.local_addr()?.port().to_string(), listener)));
        let (port, listener) =
            bound.map_err(|error| CliError::broken("cannot listen on 127.0.0.1").with_causes(&error))?;
        page.query_pairs_mut().append_pair("port", if self.device { "" } else { &port });
        if let Some(issuer) = &self.issuer {
            let next = page[url::Position::BeforePath..].to_owned();
            page.set_path("/console/sign-in/begin");
            page.query_pairs_mut().clear().append_pair("issuer", issuer).append_pair("next", &next);
            // Only the browser would see the error.
            if !client.redirects(page.clone()).await? {
                let error = CliError::failed(format!("the server cannot begin a sign-in at the issuer {issuer}"));
                return Err(error.with_hint("without --issuer, the page names the issuers; its error has the cause"));
            }
        }
        output::print(page.as_str())?;
        let code = if self.device {
            output::status_line("Open the URL in a browser, and paste the code of its page here:");
            let mut code = String::new();
            stdin().read_line(&mut code).map_err(|error| CliError::broken("no code").with_causes(&error))?;
            if code.trim().is_empty() {
                return Err(CliError::failed("no code was given").with_hint("run `ebb login --device` again"));
            }
            code
        } else {
            output::status_line("Waiting for a browser of this machine; with another one: ebb login --device");
            if stdout().is_terminal() {
                in_browser(&page);
            }
            received(listener, state.reveal().to_owned()).await?
        };
        let request = CreateLogin { code, verifier: verifier.reveal().to_owned() };
        let CreatedToken { token, info } = client.post(&["login"], &request).await?;
        let (person, expires) = (person(&info.name, info.display.as_deref()), rfc3339(info.expires));
        let (url, until) = (&client.server.url, timing::clock(&expires));
        let signed_in = format!("Signed in to {url} as {person} until {until} if used every 24 hours");
        let former = logins::change(&client.server.login_name(), Some(StoredLogin { token, person, expires }))?;
        output::status_line(&output::printable(&signed_in));
        if server.token.as_ref().is_some_and(|token| !token.is_empty()) {
            output::status_line("warning: commands use EBB_TOKEN instead, until it is unset");
        }
        end(client.server, former).await.map(|_| Exit::Done)
    }
}

/// Returns the code that a browser brings to `listener`. A browser can also bring the reason of a refusal (RFC 6749, 4.1.2.1).
async fn received(listener: TcpListener, state: String) -> Result<String> {
    let (sender, mut answers) = mpsc::channel(1);
    let receive = move |Query(answer): Query<BTreeMap<String, String>>| {
        let mut reply = (StatusCode::BAD_REQUEST, "This is not the answer to the sign-in of `ebb login`.\n");
        // Each page and program of this machine can send requests to the port.
        let text = |name: &str| answer.get(name).filter(|_| answer.get("state") == Some(&state)).cloned();
        let refusal = || text("error_description").or_else(|| text("error")).map(Err);
        if let Some(result) = text("code").map(Ok).or_else(refusal) {
            reply = (StatusCode::OK, "The terminal has the result of the sign-in. You can close this page.\n");
            // A repeated answer has no receiver.
            let _ = sender.try_send(result);
        }
        async move { reply }
    };
    let server = axum::serve(listener, Router::new().route("/", get(receive)));
    let answer = tokio::select! {
        answer = answers.recv() => answer,
        _ = server.into_future() => None,
        () = tokio::time::sleep(Duration::from_secs(600)) => None,
    };
    let error = match answer {
        Some(Ok(code)) => return Ok(code),
        Some(Err(reason)) => {
            // The browser gets its reply meanwhile.
            tokio::time::sleep(Duration::from_millis(200)).await;
            CliError::failed(format!("the sign-in was refused: {}", limits::clean(&reason, 2 * limits::MESSAGE)))
        }
        None => CliError::timed_out("no sign-in has ended within 10 minutes"),
    };
    Err(error.with_hint("run `ebb login` again"))
}

/// Ends a former login at the server. Without its answer, the server accepts the token until its end, and the exit code is 1.
async fn end(access: ServerAccess, former: Option<StoredLogin>) -> Result<Exit> {
    let Some(StoredLogin { token, expires, .. }) = former else { return Ok(Exit::Done) };
    let client = ApiClient::new(ServerAccess { token: Some(token), ..access })?;
    match client.delete(&["login"], &[]).await {
        Err(error) if !error.has_status(401) => {
            let (until, reason) = (timing::clock(&expires), error.message());
            output::status_line(&format!("warning: the server accepts the former token until {until}: {reason}"));
            Ok(Exit::Failed)
        }
        _ => Ok(Exit::Done),
    }
}

/// Removes the login at the server, also if the server cannot end its token.
pub(super) async fn logout(server: &ServerArgs) -> Result<Exit> {
    let access = server.without_login()?;
    let former = logins::change(&access.login_name(), None)?;
    let what = if former.is_some() { "Removed the login" } else { "No login is stored" };
    output::status_line(&format!("{what} at {}", access.url));
    end(access, former).await
}

fn list() -> Result<Exit> {
    let rows = logins::all()?.into_iter().map(|(server, login)| {
        let ended = if login.rest().is_zero() { " (ended)" } else { "" };
        [server, login.person, timing::clock(&login.expires) + ended]
    });
    output::status_line("A login also ends 24 hours after its last use; `ebb whoami --server URL` shows both ends.");
    output::print(&output::table(&["SERVER", "PERSON", "UNTIL"], rows))
}

fn person(name: &str, display: Option<&str>) -> String {
    display.map_or_else(|| name.to_owned(), |display| format!("{name} ({display})"))
}

pub(super) async fn whoami(client: &ApiClient, output: OutputArgs) -> Result<Exit> {
    let caller: CallerInfo = client.fetch(&["caller"]).await?;
    output.write(&caller, |CallerInfo { name, display, scopes, expires, expires_unused }| {
        let person = person(name, display.as_deref());
        let ends = [(" until ", expires), (" if used by ", expires_unused)];
        let ends = ends.map(|(word, end)| end.as_ref().map(|end| word.to_owned() + &timing::clock(end)));
        let ends = ends.into_iter().flatten().collect::<String>();
        output::printable(&format!("{person}{ends}: {}", scopes.join(", ")))
    })
}
