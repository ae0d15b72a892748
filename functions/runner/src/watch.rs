//! Waiting: for the script's end, its deadline, signals, and whoever else has something to say.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::strays;

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A child has changed its state.
    Child,
    /// Somebody asks us to end.
    Asked(Signal),
    /// One of the two outputs of the script has ended.
    Drained,
    /// The relay has taken the report, or never will.
    Reported(bool),
}

/// Why a script has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// By itself.
    Itself,
    /// It took longer than it may.
    Deadline,
    /// We were asked to end.
    Asked(Signal),
}

/// All that happens, in its order. Whoever waits goes on at once and nobody looks around in between.
#[derive(Debug)]
pub(crate) struct Watch {
    events: Receiver<Event>,
    sender: Sender<Event>,
    grace: Duration,
    /// When we were asked to end, and by which signal.
    asked: Option<(Instant, Signal)>,
    /// Outputs of the script that have ended, often before it has.
    drained: u32,
}

impl Watch {
    /// Listens from now on. Signals to this process no longer end it. `grace` is between `SIGTERM` and `SIGKILL`.
    pub(crate) fn start(grace: Duration) -> io::Result<Self> {
        let (sender, events) = channel();
        let mut signals = Signals::new([SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT])?;
        let to = sender.clone();
        thread::spawn(move || {
            for signal in signals.forever() {
                let event = match Signal::try_from(signal) {
                    Ok(Signal::SIGCHLD) => Event::Child,
                    Ok(signal) => Event::Asked(signal),
                    Err(_) => continue,
                };
                if to.send(event).is_err() {
                    return;
                }
            }
        });
        Ok(Self { events, sender, grace, asked: None, drained: 0 })
    }

    /// For others who have something to say.
    pub(crate) fn sender(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// What happens next; `None`: nothing until then. We hold a sender ourselves, so that the others cannot all go.
    fn next(&mut self, until: Instant) -> Option<Event> {
        let event = self.events.recv_timeout(until.saturating_duration_since(Instant::now())).ok()?;
        match event {
            Event::Asked(signal) => drop(self.asked.get_or_insert((Instant::now(), signal))),
            Event::Drained => self.drained += 1,
            Event::Child | Event::Reported(_) => {}
        }
        Some(event)
    }

    /// Waits for the script, at most until `deadline` and, once it was asked to end, for the grace period; then it is
    /// killed. `None` as status: not even that has ended it.
    pub(crate) fn script(&mut self, script: Pid, deadline: Instant) -> (Option<WaitStatus>, Why) {
        let mut why = Why::Itself;
        let mut until = deadline;
        let mut killed = false;
        loop {
            // A signal may have come before there was a script.
            if let (Why::Itself, Some((_, signal))) = (why, self.asked) {
                strays::signal(script, signal);
                why = Why::Asked(signal);
                until = Instant::now() + self.grace;
            }
            match self.next(until) {
                Some(Event::Child) => {
                    if let Some(status) = reap(script) {
                        return (Some(status), why);
                    }
                }
                Some(Event::Asked(signal)) if why != Why::Itself => strays::signal(script, signal),
                Some(_) => {}
                None if killed => return (None, why),
                None if why == Why::Itself => {
                    strays::signal(script, Signal::SIGTERM);
                    why = Why::Deadline;
                    until = Instant::now() + self.grace;
                }
                None => {
                    strays::signal(script, Signal::SIGKILL);
                    killed = true;
                    until = Instant::now() + strays::DEATH;
                }
            }
        }
    }

    /// Waits until both outputs have ended, but not for ever: whoever is stuck in the kernel may hold them.
    pub(crate) fn drained(&mut self, most: Duration) {
        let until = Instant::now() + most;
        while self.drained < 2 && self.next(until).is_some() {}
    }

    /// Waits until the report was taken or given up; from when we are asked to end, at most the grace period.
    pub(crate) fn reported(&mut self, most: Duration) -> bool {
        let end = Instant::now() + most;
        loop {
            let until = self.asked.map_or(end, |(at, _)| end.min(at.max(end - most) + self.grace));
            match self.next(until) {
                Some(Event::Reported(taken)) => return taken,
                Some(_) => {}
                None => return false,
            }
        }
    }
}

/// Reaps who has ended; gives how the script did if it is among them.
fn reap(script: Pid) -> Option<WaitStatus> {
    let mut found = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return found,
            Ok(status) if status.pid() == Some(script) => found = Some(status),
            // Descendants whose parents did not wait for them.
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return found,
        }
    }
}
