//! Waits for the end of a script, its deadline, signals, cancellations, and the other threads of a supervisor.

use std::collections::HashSet;
use std::io;
use std::process::Child;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::{ProcessExit, StopCause};
use crate::processes;

/// The longest time that can be added to any clock. In practice it never passes.
pub(crate) const FAR_AWAY: Duration = Duration::from_secs(100 * 365 * 86_400);
/// The timeout for the rest of the output after all processes of the script have ended.
const DRAIN: Duration = Duration::from_secs(60);
/// The timeout if a process could not be killed, because it may keep the stream open.
const DRAIN_OF_STUCK: Duration = Duration::from_secs(1);

/// An event that a supervisor waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// A child of this process has changed its state.
    Child,
    /// This process has received a termination signal.
    Signaled(Signal),
    /// The script is cancelled. The duration is the time between `SIGTERM` and `SIGKILL`.
    Cancelled(Duration),
    /// An output stream of the script has ended.
    Drained,
    /// A report was acknowledged (true), or its last attempt has failed (false).
    Reported(bool),
}

/// The events of a supervisor, in their order. Each event wakes the waiting thread, which does not poll.
#[derive(Debug)]
pub struct ScriptWatch {
    events: Receiver<WatchEvent>,
    sender: Sender<WatchEvent>,
    grace: Duration,
    /// The first request to stop the script, and its time.
    stop: Option<(Instant, StopRequest)>,
    /// The number of output streams that have ended. A stream often ends before the script.
    drained: usize,
}

#[derive(Clone, Copy, Debug)]
struct StopRequest {
    cause: StopCause,
    signal: Signal,
    grace: Duration,
}

impl ScriptWatch {
    /// Starts to receive signals, which then no longer end this process. A script has `grace` between the termination
    /// signal and `SIGKILL`, unless a cancellation sets another time. Each of these signals reaches the script at most
    /// once.
    ///
    /// # Errors
    /// Returns an error if no signal handlers can be installed.
    pub fn start(grace: Duration) -> io::Result<Self> {
        let (sender, events) = channel();
        let mut signals = Signals::new([SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT])?;
        let to = sender.clone();
        thread::spawn(move || {
            // A repeated termination signal has no effect, and many of them would fill the channel.
            let mut passed_on = HashSet::new();
            for signal in signals.forever() {
                let event = match Signal::try_from(signal) {
                    Ok(Signal::SIGCHLD) => WatchEvent::Child,
                    Ok(signal) if passed_on.insert(signal) => WatchEvent::Signaled(signal),
                    Ok(_) | Err(_) => continue,
                };
                if to.send(event).is_err() {
                    return;
                }
            }
        });
        Ok(Self { events, sender, grace, stop: None, drained: 0 })
    }

    /// Returns a sender for the other threads of the supervisor.
    pub fn sender(&self) -> Sender<WatchEvent> {
        self.sender.clone()
    }

    /// Returns the next event. Returns `None` after `until`, even if events are pending. This watch holds a sender, so
    /// the channel stays open.
    pub fn next(&mut self, until: Instant) -> Option<WatchEvent> {
        let event = self.events.recv_timeout(until.checked_duration_since(Instant::now())?).ok()?;
        let mut stop = |cause, signal, grace| {
            self.stop.get_or_insert((Instant::now(), StopRequest { cause, signal, grace }));
        };
        match event {
            WatchEvent::Signaled(signal) => stop(StopCause::Signaled(signal), signal, self.grace),
            WatchEvent::Cancelled(grace) => stop(StopCause::Cancelled, Signal::SIGTERM, grace.min(FAR_AWAY)),
            WatchEvent::Drained => self.drained += 1,
            WatchEvent::Child | WatchEvent::Reported(_) => {}
        }
        Some(event)
    }

    /// Waits until the script and all its processes have ended, and its `streams` output streams too. Sends a
    /// termination signal at `deadline`, when this process receives one, or when the script is cancelled. Kills the
    /// script after the grace period. A process that is stuck in the kernel is left behind.
    pub(crate) fn supervise(&mut self, script: &Child, deadline: Instant, streams: usize) -> ProcessExit {
        let script = Pid::from_raw(i32::try_from(script.id()).unwrap_or(i32::MAX));
        let end = self.wait(script, deadline);
        self.finish(script, streams);
        end
    }

    /// Kills and reaps all processes that are left, and `child` itself, which must not be reaped yet. Then waits for the
    /// end of its `streams` output streams.
    pub fn finish(&mut self, child: Pid, streams: usize) {
        let until = later(if processes::kill_all(child) { DRAIN } else { DRAIN_OF_STUCK });
        while self.drained < streams && self.next(until).is_some() {}
        self.drained = 0;
    }

    fn wait(&mut self, script: Pid, deadline: Instant) -> ProcessExit {
        let mut cause = StopCause::Finished;
        let mut until = deadline;
        let mut killed = false;
        loop {
            // The request may have arrived before the script started.
            if let (StopCause::Finished, Some((_, request))) = (cause, self.stop) {
                processes::signal(script, request.signal);
                cause = request.cause;
                until = later(request.grace);
            }
            let event = self.next(until);
            // This is also checked at a deadline, because the script may have ended before it.
            if matches!(event, None | Some(WatchEvent::Child))
                && let Some(status) = processes::reap(script)
            {
                return ProcessExit { status: Some(status), cause };
            }
            match event {
                Some(WatchEvent::Signaled(signal)) if cause != StopCause::Finished => {
                    processes::signal(script, signal);
                }
                Some(_) => {}
                None if killed => return ProcessExit { status: None, cause },
                None if cause == StopCause::Finished => {
                    processes::signal(script, Signal::SIGTERM);
                    cause = StopCause::Deadline;
                    until = later(self.grace);
                }
                None => {
                    processes::signal(script, Signal::SIGKILL);
                    killed = true;
                    until = later(processes::KILL_TIMEOUT);
                }
            }
        }
    }

    /// Waits for `most` at most until a report was acknowledged or its last attempt has failed. After a request to
    /// stop, waits at most for the grace period. Returns true if the report was acknowledged.
    pub fn wait_for_report(&mut self, most: Duration) -> bool {
        let begin = Instant::now();
        let end = later(most);
        loop {
            match self.next(self.stop.map_or(end, |(at, request)| end.min(at.max(begin) + request.grace))) {
                Some(WatchEvent::Reported(taken)) => return taken,
                Some(_) => {}
                None => return false,
            }
        }
    }
}

fn later(wait: Duration) -> Instant {
    Instant::now() + wait.min(FAR_AWAY)
}
