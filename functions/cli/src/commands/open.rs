//! `ebb open`: shows the console in a browser.

use std::io::{IsTerminal as _, stdout};

use url::Url;

use crate::{ApiClient, Exit, KindArgs, Result, TargetRef, output};

#[derive(Debug, clap::Args)]
pub(crate) struct OpenArgs {
    /// Name of the target to show, or KIND/NAME; by default all targets
    #[arg(value_name = "SANDBOX")]
    name: Option<String>,
    #[command(flatten)]
    kind: KindArgs,
    /// Print the URL and open no browser
    #[arg(long)]
    print: bool,
}

impl OpenArgs {
    /// Prints the URL of a page. In a terminal, a browser opens it too. A target that does not exist is an error.
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let kind = self.kind.of(self.name.as_slice())?;
        let target = self.name.as_ref().map(|name| TargetRef::parse(kind, name)).transpose()?;
        // Without a token, the browser signs in. So only the answer that the target does not exist is an error.
        if let Some(target) = &target
            && let Ok(None) = client.target(target).await
        {
            client.existing(target).await?;
        }
        let page = client.console(target.as_ref());
        let link = client.console_link(&page).await;
        if !self.print && stdout().is_terminal() {
            in_browser(&page);
            if link.is_some() {
                output::status_line("if the browser asks for a token, open this link, which signs in once:");
            }
        }
        output::print(link.unwrap_or(page).as_str())
    }
}

/// Opens a page in a browser. The URL must have no code that signs in: other users of the machine can see arguments.
pub(crate) fn in_browser(page: &Url) {
    if let Err(error) = open::that_detached(page.as_str()) {
        output::status_line(&format!("cannot open a browser: {error}"));
    }
}
