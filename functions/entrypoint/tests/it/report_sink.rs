//! A server in the role of the relay, with prepared responses.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebb_protocol::entrypoint::{ReportState, ScriptExit, ScriptReport};

use crate::fixture::until;

#[derive(Clone, Copy, Debug)]
pub(crate) enum ServerReply {
    Status(u16),
    /// The report arrives, and the connection ends after this time without a response.
    Lost(Duration),
}

#[derive(Clone, Debug)]
pub(crate) struct ReceivedReport {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl ReceivedReport {
    pub(crate) fn report(&self) -> ScriptReport {
        serde_json::from_slice(&self.body).expect("a report")
    }
}

pub(crate) struct ReportSink {
    pub(crate) address: SocketAddr,
    reports: Arc<Mutex<Vec<ReceivedReport>>>,
}

impl ReportSink {
    /// Starts a server. It responds to reports of the end with `replies` in turn, then with the last one again. Heartbeats get
    /// 204.
    pub(crate) fn start(replies: impl IntoIterator<Item = ServerReply>) -> Self {
        Self::on("127.0.0.1:0".parse().expect("an address"), replies, ServerReply::Status(204))
    }

    pub(crate) fn on(
        address: SocketAddr,
        replies: impl IntoIterator<Item = ServerReply>,
        heartbeat_reply: ServerReply,
    ) -> Self {
        let listener = TcpListener::bind(address).expect("a port");
        let reports: Arc<Mutex<Vec<ReceivedReport>>> = Arc::default();
        let server = Self { address: listener.local_addr().expect("a bound address"), reports: Arc::clone(&reports) };
        let replies: Arc<Mutex<VecDeque<ServerReply>>> = Arc::new(Mutex::new(replies.into_iter().collect()));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (reports, replies) = (Arc::clone(&reports), Arc::clone(&replies));
                std::thread::spawn(move || serve(stream, &reports, &replies, heartbeat_reply));
            }
        });
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1/reports/a", self.address)
    }

    pub(crate) fn reports(&self) -> Vec<ReceivedReport> {
        self.reports.lock().expect("no panic").clone()
    }

    pub(crate) fn ends(&self) -> Vec<ReceivedReport> {
        let is_end = |report: &ReceivedReport| matches!(report.report().state, ReportState::Ended(_));
        self.reports().into_iter().filter(is_end).collect()
    }

    /// Returns the report of the end, the end in it, and its bytes.
    pub(crate) fn wait_for_end(&self) -> (ScriptReport, ScriptExit, Vec<u8>) {
        let end = until("the report of the end", || self.ends().pop());
        let ReportState::Ended(ended) = end.report().state else { panic!("{end:?}") };
        (end.report(), *ended, end.body)
    }
}

fn serve(
    stream: TcpStream,
    reports: &Mutex<Vec<ReceivedReport>>,
    replies: &Mutex<VecDeque<ServerReply>>,
    heartbeat_reply: ServerReply,
) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            reader.read_line(&mut head).ok().filter(|bytes| *bytes > 0)?;
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-length").then(|| value.parse().expect("a number"))
        });
        let mut body = vec![0; length.expect("a length")];
        reader.read_exact(&mut body).ok()?;
        let received = ReceivedReport { head, body };
        let is_end = matches!(received.report().state, ReportState::Ended(_));
        reports.lock().expect("no panic").push(received);
        let reply = if is_end {
            let mut replies = replies.lock().expect("no panic");
            if replies.len() > 1 { replies.pop_front() } else { replies.front().copied() }
        } else {
            Some(heartbeat_reply)
        };
        match reply? {
            ServerReply::Status(status) => {
                let text = format!("HTTP/1.1 {status} Status\r\ncontent-length: 0\r\n\r\n");
                reader.get_mut().write_all(text.as_bytes()).ok()?;
            }
            ServerReply::Lost(time) => {
                std::thread::sleep(time);
                return None;
            }
        }
    }
}
