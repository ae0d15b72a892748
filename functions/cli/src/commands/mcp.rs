//! `ebb mcp`: serves the tools of coding agents, which send requests to the API as other commands do.

use ebb_api::mcp::{EbbTools, ToolAccess};

use crate::{ApiClient, CliError, Exit, Result};

#[derive(Debug, clap::Args)]
pub(crate) struct McpArgs {
    /// Add the tools that create, update, delete and retry targets, if the token permits it
    #[arg(long)]
    allow_writes: bool,
}

impl McpArgs {
    pub(crate) async fn run(self, client: ApiClient) -> Result<Exit> {
        let access = if self.allow_writes { ToolAccess::ByScopes } else { ToolAccess::ReadOnly };
        ebb_api::mcp::serve_stdio(EbbTools::new(client, access)).await.map(|()| Exit::Done).map_err(|error| {
            CliError::broken("no client of the Model Context Protocol is at standard input")
                .with_causes(error.as_ref())
                .with_hint("name `ebb mcp` in the configuration of your coding agent")
        })
    }
}
