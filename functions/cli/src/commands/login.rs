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
use ebb_protocol::{CallerInfo, CreateLogin, CreatedToken, SessionId, code_challenge, rfc3339};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::open::in_browser;
use crate::{
    ApiClient, CliError, Exit, OutputArgs, Result, ServerAccess, ServerArgs, is_local, logins, output, timing,
};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ebb login\n  ebb login --device\n  ebb login --issuer okta")]
pub(crate) struct LoginArgs {
    /// Name or URL of the issuer; by default, the page uses the session of the browser
    #[arg(long, value_name = "NAME")]
    issuer: Option<String>,
    /// Ask for the code of the page, whose browser can be on any device
    #[arg(long)]
    device: bool,
}

impl LoginArgs {
    pub(super) async fn run(self, server: &ServerArgs) -> Result<Exit> {
        let access = server.without_login()?;
        let mut page = access.url.clone();
        if page.scheme() != "https" && !is_local(&page) {
            return Err(CliError::failed(format!("{page} is not https: others could read the token on its way")));
        }
        // The token of another server stays here. A file that cannot be used is an error before a person approves.
        let client = ApiClient::new(ServerAccess { token: None, ..access })?;
        logins::find(&client.server.url)?;
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
        }
        output::print(page.as_str())?;
        let code = if self.device {
            output::status_line("Open the URL in a browser, and paste the code of its page here:");
            let mut code = String::new();
            stdin().read_line(&mut code).map_err(|error| CliError::broken("no code").with_causes(&error))?;
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
        let (url, expires) = (&client.server.url, rfc3339(info.expires));
        let former = logins::change(url, Some((token, expires.clone())))?;
        let until = timing::clock(&expires);
        output::status_line(&output::printable(&format!("Signed in to {url} as {} until {until}", info.name)));
        if server.token.as_ref().is_some_and(|token| !token.is_empty()) {
            output::status_line("warning: commands use the given token instead, such as that of EBB_TOKEN");
        }
        end(client.server, former).await
    }
}

/// Returns the code that a browser brings to `listener`.
async fn received(listener: TcpListener, state: String) -> Result<String> {
    let (sender, mut codes) = mpsc::channel(1);
    let receive = move |Query(answer): Query<BTreeMap<String, String>>| {
        let mut reply = (StatusCode::BAD_REQUEST, "This is not the answer to the sign-in of `ebb login`.\n");
        // Each page and program of this machine can send requests to the port.
        if let Some(code) = answer.get("code").filter(|_| answer.get("state") == Some(&state)) {
            reply = (StatusCode::OK, "The sign-in continues in the terminal. You can close this page.\n");
            // A repeated answer has no receiver.
            let _ = sender.try_send(code.clone());
        }
        async move { reply }
    };
    let server = axum::serve(listener, Router::new().route("/", get(receive)));
    let code = tokio::select! {
        code = codes.recv() => code,
        _ = server.into_future() => None,
        () = tokio::time::sleep(Duration::from_secs(600)) => None,
    };
    code.ok_or_else(|| CliError::timed_out("no sign-in has ended within 10 minutes").with_hint("run `ebb login` again"))
}

/// Ends a token of a login at the server, as far as the server answers.
async fn end(access: ServerAccess, token: Option<String>) -> Result<Exit> {
    if token.is_some()
        && let Err(error) = ApiClient::new(ServerAccess { token, ..access })?.delete(&["login"], &[]).await
        && !error.has_status(401)
    {
        output::status_line(&format!("warning: the server has not ended its token: {}", error.message()));
    }
    Ok(Exit::Done)
}

/// Removes the login at the server, also if the server cannot end its token.
pub(super) async fn logout(server: &ServerArgs) -> Result<Exit> {
    let access = server.without_login()?;
    let token = logins::change(&access.url, None)?;
    let what = if token.is_some() { "Removed the login" } else { "No login is stored" };
    output::status_line(&format!("{what} at {}", access.url));
    end(access, token).await
}

pub(super) async fn whoami(client: &ApiClient, output: OutputArgs) -> Result<Exit> {
    let caller: CallerInfo = client.fetch(&["caller"]).await?;
    output.write(&caller, |CallerInfo { name, display, scopes, expires }| {
        let display = display.as_ref().map(|display| format!(" ({display})")).unwrap_or_default();
        let until = expires.as_ref().map(|expires| format!(" until {}", timing::clock(expires))).unwrap_or_default();
        output::printable(&format!("{name}{display}{until}: {}", scopes.join(", ")))
    })
}
