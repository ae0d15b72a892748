//! A server of the Model Context Protocol: tools by which coding agents use Ebb.
//!
//! 1. [`EbbTools`] lists and calls the tools of `tool_table`. Each has one handler.
//! 2. A handler sends requests to the API through an [`ApiTransport`], so that it can do what the caller can do.
//! 3. It returns an `Answer` of at most 4 kB, in which each line of data is marked.
//!
//! [`http_service`] serves requests of streamable HTTP without sessions. [`serve_stdio`] serves the client that started this
//! program.

mod answer;
mod api_calls;
mod arguments;
mod change_tools;
mod docs_search;
mod document_tools;
mod target_tools;
#[cfg(test)]
mod tests;
mod tool_table;

use std::sync::Arc;

use ebb_protocol::limits;
use http::Uri;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CustomRequest, CustomResult, ErrorCode,
    ErrorData, Implementation, JsonObject, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
    Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler, ServiceExt as _};
use serde_json::json;

use tool_table::{TOOLS, ToolEffect, ToolSpec};

pub(crate) use answer::{Answer, MAX_ANSWER, pick, yaml};
pub use api_calls::ApiTransport;
pub(crate) use api_calls::{ApiCalls, ToolError, invalid};

/// What models read before they select a tool.
const INSTRUCTIONS: &str = include_str!("mcp/instructions.txt");

/// Maximum bytes of a name of the client in an error.
const MAX_NAME: usize = 100;

/// The tools that a client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolAccess {
    ReadOnly,
    /// Those that change targets, too, if the caller may change targets.
    ByScopes,
}

#[derive(Clone)]
pub struct EbbTools {
    api: ApiCalls,
    access: ToolAccess,
}

impl EbbTools {
    /// Returns the tools of the caller whose credentials `transport` sends.
    pub fn new(transport: impl ApiTransport, access: ToolAccess) -> Self {
        Self { api: ApiCalls::new(transport), access }
    }

    async fn call(
        &self,
        CallToolRequestParams { name, arguments, .. }: CallToolRequestParams,
    ) -> Result<CallToolResult, ErrorData> {
        let unknown = || {
            let name = limits::clean(&name, MAX_NAME);
            ErrorData::invalid_params(format!("unknown tool {name}; tools/list names the tools"), None)
        };
        let tool = TOOLS.iter().find(|tool| tool.name == name).ok_or_else(unknown)?;
        let result = match (tool.effect, self.access) {
            (ToolEffect::Destroys { .. }, ToolAccess::ReadOnly) => Err(ToolError::ReadOnly(tool.name)),
            _ => (tool.run)(&self.api, arguments.unwrap_or_default()).await,
        };
        Ok(match result {
            Ok(answer) => CallToolResult::success(vec![ContentBlock::text(answer.text())]),
            Err(error) => CallToolResult::error(vec![ContentBlock::text(error.answer().text())]),
        })
    }
}

impl ServerHandler for EbbTools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("ebb", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS.trim_end())
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        if request.is_some_and(|request| request.cursor.is_some()) {
            return Err(ErrorData::invalid_params("the cursor is unknown: tools/list has one page", None));
        }
        let scopes = match self.access {
            ToolAccess::ByScopes => self.api.scopes().await,
            ToolAccess::ReadOnly => Some(Vec::new()),
        };
        // Clients list tools once, also before the server of a project has started. The API refuses what is not permitted.
        let is_listed = |tool: &&ToolSpec| scopes.as_ref().is_none_or(|scopes| tool.effect.is_permitted(scopes));
        let listed = TOOLS.iter().filter(is_listed);
        Ok(ListToolsResult::with_all_items(listed.map(|tool| tool.tool()).collect::<Vec<Tool>>()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.call(request).await.map(CallToolResponse::from)
    }

    /// Refuses a request, unless it is a call whose arguments are one JSON text. One of a known method is here if its parameters
    /// have not the form of the protocol.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        if let Some(call) = call_of_text(&request) {
            return self.call(call).await.map(|result| CustomResult::new(json!(result)));
        }
        let method = limits::clean(&request.method, MAX_NAME);
        Err(match method.as_str() {
            "tools/call" | "tools/list" => {
                ErrorData::invalid_params(format!("the `params` of {method} have not the form of the protocol"), None)
            }
            _ => ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None),
        })
    }
}

/// Returns a call whose arguments are the JSON text of an object.
fn call_of_text(CustomRequest { method, params, .. }: &CustomRequest) -> Option<CallToolRequestParams> {
    let mut params = params.clone().filter(|_| method == "tools/call")?;
    let arguments: JsonObject = serde_json::from_str(params.get("arguments")?.as_str()?).ok()?;
    params["arguments"] = arguments.into();
    serde_json::from_value(params).ok()
}

/// Returns the service for one request of streamable HTTP, of at most [`limits::API_BODY`] bytes. `url` is the address of the
/// server.
///
/// It refuses requests of pages with another origin than the server and this machine. Without TLS it refuses other names of
/// the server, too: a page can give its own name the address of this machine. With TLS such a name has no certificate.
pub fn http_service(tools: EbbTools, url: &str) -> StreamableHttpService<EbbTools, NeverSessionManager> {
    let mut config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(limits::API_BODY)
        .with_allowed_origins(["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"]);
    let own = url.parse::<Uri>().ok();
    let own = own.as_ref().and_then(|own| Some((own.scheme_str()?, own.host()?, own.port_u16())));
    match own {
        Some((scheme, host, port)) => {
            let port = port.unwrap_or(if scheme == "https" { 443 } else { 80 });
            config.allowed_origins.push(format!("{scheme}://{host}:{port}"));
            match scheme {
                "https" => config.allowed_hosts.clear(),
                _ => config.allowed_hosts.push(host.to_owned()),
            }
        }
        // The names of the server are unknown.
        None => config.allowed_hosts.clear(),
    }
    StreamableHttpService::new(move || Ok(tools.clone()), Arc::new(NeverSessionManager::default()), config)
}

/// Serves the client at standard input and output until it closes them.
///
/// # Errors
/// Returns an error if the client does not begin with a request of the protocol, or if the service panics.
pub async fn serve_stdio(tools: EbbTools) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    tools.serve(rmcp::transport::stdio()).await?.waiting().await?;
    Ok(())
}
