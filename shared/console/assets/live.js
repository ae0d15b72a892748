// Makes an open page live. A page is complete without this file.
//
// 1. It renews the part `main`: asks whether anything has changed, requests the page again, and replaces what changed. A hidden page
//    is not renewed. Open parts, the focus, selections in fields and scrolled boxes stay as they are.
// 2. Times become ages, durations count, buttons copy values, and keys move through rows.

const main = document.querySelector("main");
const ROWS = "tbody tr, .row";
const FOCUSABLE = "a, button, summary, [tabindex]";
const FIELDS = "input:not(#wrap), select, textarea";
const BOXES = ".wide, .listing";
const UNITS = [[86_400, "d"], [3_600, "h"], [60, "min"], [1, "s"]];
const KEYS = `<h2>Keys</h2><dl><dt>j, k<dd>next and previous row<dt>Enter<dd>open the row<dt>/<dd>search<dt>?<dd>these keys<dt>Esc
  <dd>leave a field, close</dl><form method="dialog"><button>Close</button></form>`;

// Returns the largest units of a duration, such as `3 min 4 s`.
function duration(seconds, count = 2) {
  const at = UNITS.findIndex(([size]) => seconds >= size);
  const part = ([size, unit], number) => `${Math.floor((number ? seconds % UNITS[at][0] : seconds) / size)} ${unit}`;
  return at < 0 ? "0 s" : UNITS.slice(at, at + count).map(part).join(" ");
}

// Shows what a page without scripts does not have: ages, durations, and buttons.
function enliven(root) {
  const write = (element, text) => element.textContent === text || (element.textContent = text);
  for (const time of root.querySelectorAll("time[datetime]")) {
    const seconds = (Date.now() - Date.parse(time.dateTime)) / 1000;
    if (Number.isNaN(seconds)) continue;
    const age = seconds < 0 ? `in ${duration(-seconds, 1)}` : `${duration(seconds, 1)} ago`;
    const local = new Date(time.dateTime).toLocaleString("sv");
    // After such a word, a sentence has a point in time.
    const isPoint = /\b(at|since|until|before|after|from|to)\s*$/i.test(time.previousSibling?.nodeValue ?? "");
    write(time, isPoint ? local : age);
    time.title = isPoint ? age : local;
  }
  for (const since of root.querySelectorAll("[data-since]")) write(since, duration((Date.now() - Date.parse(since.dataset.since)) / 1000));
  for (const button of root.querySelectorAll("[data-copy], [data-follow]")) button.hidden = button.dataset.copy && !navigator.clipboard;
}

// The name of a part, which is the same before and after.
const name = (element, position) => element.id || element.getAttribute("href") || element.name || `${element.tagName}:${position}`;

function remember() {
  const open = new Map([...main.querySelectorAll("details[id]")].map((part) => [part.id, part.open]));
  // A log that still fits into its box is at its end, too.
  const isAtEnd = (box) => (box.scrollTop > 0 || box.dataset.mark) && box.scrollTop + box.clientHeight >= box.scrollHeight - 4;
  const scrolled = [...main.querySelectorAll(BOXES)].map((box) => [box.scrollLeft, box.scrollTop, isAtEnd(box)]);
  const focusable = [...main.querySelectorAll(FOCUSABLE)];
  return { open, scrolled, wraps: main.querySelector("#wrap")?.checked, focused: focusable.map(name)[focusable.indexOf(document.activeElement)] };
}

function restore({ open, scrolled, wraps, focused }) {
  if (wraps === false) main.querySelector("#wrap").checked = false;
  for (const part of main.querySelectorAll("details[id]")) part.open = open.get(part.id) ?? part.open;
  [...main.querySelectorAll(BOXES)].forEach((box, position) => {
    const [left, top, wasAtEnd] = scrolled[position] ?? [0, 0, false];
    // A log that was read to its end follows.
    box.scrollTo(left, wasAtEnd ? box.scrollHeight : top);
  });
  const focusable = [...main.querySelectorAll(FOCUSABLE)];
  focusable[focusable.map(name).indexOf(focused)]?.focus({ preventScroll: true });
}

// True while a renewal would disturb the reader.
function isBusy() {
  const active = document.activeElement;
  const isTyping = main.contains(active) && active.matches(FIELDS);
  // A list whose HTML selects no option shows its first one.
  const isChosen = ({ selectedIndex, options }) => selectedIndex !== Math.max(0, [...options].findIndex((one) => one.defaultSelected));
  const isChanged = (field) =>
    field.options ? isChosen(field) : field.value !== field.defaultValue || field.checked !== field.defaultChecked;
  const { isCollapsed, anchorNode } = getSelection();
  return isTyping || [...main.querySelectorAll(FIELDS)].some(isChanged) || (!isCollapsed && main.contains(anchorNode));
}

// Returns true if a list has to be requested again, because targets have changed.
async function hasNews() {
  const since = encodeURIComponent(main.dataset.since);
  const response = await fetch(`/console/changes?since=${since}`, { credentials: "same-origin", cache: "no-store" });
  if (response.redirected) return true;
  const { reload, targets } = response.ok ? await response.json() : { targets: [] };
  return reload || targets.length > 0;
}

// Returns the entity tag to send. The server compares the part before the dot, the stamp, before it renders a page. Without the
// stamp it renders the page, and sends it if its content has changed.
const known = (etag, isFull) => (isFull ? etag.replace(/"[^".]*\./, '"') : etag);

const number = (line) => Number(line.id.slice(1));

// Completes a log with the lines that the page has already: the server has sent those after the mark. The last line that has not
// ended is sent again. The server numbers the lines that it has, so a line has a lower number after the loss of earlier ones.
function complete(log, next) {
  if (!log || !next || !("appends" in next.dataset)) return;
  const kept = [...log.children];
  if (kept.length > 0 && !kept.at(-1).textContent.endsWith("\n")) kept.pop();
  const end = next.firstElementChild ? number(next.firstElementChild) : kept.length > 0 && number(kept.at(-1)) + 1;
  kept.forEach((line, at) => (line.id = `L${end - kept.length + at}`));
  next.prepend(...kept.filter((line) => number(line) >= Number(next.dataset.first)));
  delete next.dataset.appends;
}

async function renew(state) {
  const isFull = main.dataset.fullSeconds && performance.now() - state.rendered > Number(main.dataset.fullSeconds) * 1000;
  if (main.dataset.since && !isFull && !(await hasNews())) return;
  const url = new URL(location.href);
  const log = main.querySelector("[data-mark]");
  if (log) url.searchParams.set("after", log.dataset.mark);
  const headers = { "If-None-Match": known(state.etag, isFull) };
  const response = await fetch(url, { headers, credentials: "same-origin", cache: "no-store" });
  // The session has ended: the page of the sign-in has another URL.
  if (response.redirected) return location.reload();
  if (response.status !== 304 && !response.ok) return;
  const text = response.status === 304 ? null : await response.text();
  if (text !== null && isBusy()) return;
  const etag = response.headers.get("ETag");
  if (isFull || etag !== state.etag) state.rendered = performance.now();
  state.etag = etag || state.etag;
  if (text === null) return;
  const next = new DOMParser().parseFromString(text, "text/html");
  const content = next.querySelector("main");
  if (!content) return;
  const kept = remember();
  complete(log, content.querySelector("[data-mark]"));
  Object.assign(main.dataset, content.dataset);
  document.title = next.title;
  // An element that replaces that of the address is not its target any more.
  if (location.hash) next.getElementById(location.hash.slice(1))?.closest("tr, .log i")?.classList.add("target");
  [main, content].forEach(enliven);
  if (content.innerHTML === main.innerHTML) return;
  main.replaceChildren(...content.childNodes);
  restore(kept);
}

// Moves the focus to the link of the next row, or of the previous one.
function move(step) {
  const rows = [...main.querySelectorAll(ROWS)].filter((row) => row.querySelector("a[href]"));
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows.at(Math.min(at < 0 && step < 0 ? -1 : Math.max(at + step, 0), rows.length - 1));
  (next?.querySelector("th a[href]") ?? next?.querySelector("a[href]"))?.focus();
}

function search() {
  const box = document.getElementById("search");
  if (box) box.focus();
  else location.assign("/console/targets#search");
}

// Offers the words of the list after those that are in the box.
function completeWords({ target }) {
  const before = target.value.slice(0, target.value.lastIndexOf(" ") + 1);
  for (const option of target.list?.options ?? []) option.value = before + (option.dataset.word ??= option.value);
}

function showKeys() {
  const dialog = document.createElement("dialog");
  Object.assign(dialog, { ariaLabel: "Keys", innerHTML: KEYS, onclose: () => dialog.remove() });
  document.body.append(dialog);
  dialog.showModal();
}

document.addEventListener("keydown", (event) => {
  const { key, target, ctrlKey, metaKey, altKey } = event;
  if (ctrlKey || metaKey || altKey || target.closest("dialog")) return;
  if (key === "Escape") return target.blur();
  const act = { j: () => move(1), k: () => move(-1), "/": search, "?": showKeys }[key];
  if (!act || target.matches("input:not([type=checkbox]), select, textarea")) return;
  event.preventDefault();
  act();
});
document.addEventListener("focusin", ({ target }) => target.closest(ROWS)?.classList.add("current"));
document.addEventListener("focusout", ({ target }) => target.closest(ROWS)?.classList.remove("current"));
document.addEventListener("click", async ({ target, offsetX }) => {
  if (target.closest("[data-follow]")) main.querySelector(".log[data-mark]").scrollTo(0, Number.MAX_SAFE_INTEGER);
  // The number of a line is in its padding.
  if (target.matches(".log i[id]") && offsetX < Number.parseFloat(getComputedStyle(target).paddingLeft)) location.hash = target.id;
  const button = target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.dataset.copy);
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy"), 2_000);
});
addEventListener("hashchange", () => main.querySelector(".target")?.classList.remove("target"));
document.addEventListener("input", completeWords);
if (location.hash === "#search") search();
enliven(main);
setInterval(() => document.hidden || enliven(main), 1_000);

if (main.dataset.renewSeconds) {
  // A log opens at its newest line, or at that of the address.
  for (const box of main.querySelectorAll(".log[data-mark]")) if (!location.hash) box.scrollTop = box.scrollHeight;
  // The page has no entity tag here. Its stamp is the first part of one.
  const state = { etag: `W/"${main.dataset.stamp || "none"}."`, rendered: performance.now() };
  const wait = () => setTimeout(next, Number(main.dataset.renewSeconds) * 1000);
  let timer = 0;
  const next = async () => {
    timer = 0;
    if (document.hidden) return;
    // The server may be away for a while. The next request shows that it is there again.
    if (!isBusy()) await renew(state).catch(() => {});
    if (!timer && !document.hidden) timer = wait();
  };
  timer = wait();
  document.addEventListener("visibilitychange", () => document.hidden || timer || next());
}
