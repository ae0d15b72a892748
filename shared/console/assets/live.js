// Renews the part `main` of a page: asks whether anything has changed, requests the page again, and replaces what changed. A
// hidden page is not renewed. Open parts, the focus, selections in fields and scrolled boxes stay as they are.

const main = document.querySelector("main[data-renew-seconds]");

// The values that a part keeps, by a name that is the same before and after.
const name = (element, position) => element.id || element.getAttribute("href") || element.name || `${element.tagName}:${position}`;

function remember() {
  const open = new Map();
  for (const part of main.querySelectorAll("details[id]")) open.set(part.id, part.open);
  const scrolled = [...main.querySelectorAll(".wide, .listing")].map((box) => [
    box.scrollLeft,
    box.scrollTop,
    // A log that still fits into its box is at its end, too.
    (box.scrollTop > 0 || box.matches("[data-mark]")) && box.scrollTop + box.clientHeight >= box.scrollHeight - 4,
  ]);
  const focusable = [...main.querySelectorAll("a, button, summary, [tabindex]")];
  const position = focusable.indexOf(document.activeElement);
  const focused = position < 0 ? null : name(focusable[position], position);
  return { open, scrolled, focused };
}

function restore({ open, scrolled, focused }) {
  for (const part of main.querySelectorAll("details[id]")) {
    if (open.has(part.id)) part.open = open.get(part.id);
  }
  [...main.querySelectorAll(".wide, .listing")].forEach((box, position) => {
    const before = scrolled[position];
    if (!before) return;
    const [left, top, isAtEnd] = before;
    box.scrollLeft = left;
    // A log that was read to its end follows.
    box.scrollTop = isAtEnd ? box.scrollHeight : top;
  });
  if (focused === null) return;
  const focusable = [...main.querySelectorAll("a, button, summary, [tabindex]")];
  const again = focusable.find((element, position) => name(element, position) === focused);
  again?.focus({ preventScroll: true });
}

// True while a renewal would disturb the reader.
function isBusy() {
  const active = document.activeElement;
  const isTyping = main.contains(active) && active.matches("input, select, textarea");
  // A list whose HTML selects no option shows its first one.
  const isChosen = (choice) =>
    choice.selectedIndex !== Math.max(0, [...choice.options].findIndex((option) => option.defaultSelected));
  const isTicked = (box) => box.checked !== box.defaultChecked;
  const isChanged = (field) =>
    field.options ? isChosen(field) : field.value !== field.defaultValue || (field.type === "checkbox" && isTicked(field));
  if ([...main.querySelectorAll("input, select, textarea")].some(isChanged)) return true;
  const selection = getSelection();
  return isTyping || (selection && !selection.isCollapsed && main.contains(selection.anchorNode));
}

// Returns true if a list has to be requested again, because targets have changed.
async function hasNews() {
  const since = encodeURIComponent(main.dataset.since);
  const response = await fetch(`/console/changes?since=${since}`, { credentials: "same-origin", cache: "no-store" });
  if (response.redirected) return true;
  if (!response.ok) return false;
  const changes = await response.json();
  return changes.reload || changes.targets.length > 0;
}

// Returns the entity tag to send. The server compares the part before the dot, the stamp, before it renders a page. Without the
// stamp it renders the page, and sends it if its content has changed.
const known = (etag, isFull) => (isFull ? etag.replace(/"[^".]*\./, '"') : etag);

// Maximum characters of a log. The server sends as many bytes of its end.
const MAX_LOG = 256 * 1024;

// Completes a log with the lines that the page has already: the server has sent those after the mark. The last line that has not
// ended is sent again.
function complete(log, next) {
  if (!log || !next || !("appends" in next.dataset)) return;
  const text = log.textContent.slice(0, log.textContent.lastIndexOf("\n") + 1) + next.textContent;
  next.textContent = text.length > MAX_LOG ? text.slice(text.indexOf("\n", text.length - MAX_LOG) + 1) : text;
  delete next.dataset.appends;
}

async function renew(state) {
  const isFull = main.dataset.fullSeconds && performance.now() - state.rendered > Number(main.dataset.fullSeconds) * 1000;
  if (main.dataset.since && !isFull && !(await hasNews())) return;
  const headers = { "If-None-Match": known(state.etag, isFull) };
  const url = new URL(location.href);
  const log = main.querySelector("[data-mark]");
  if (log) url.searchParams.set("after", log.dataset.mark);
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
  complete(log, content.querySelector("[data-mark]"));
  for (const name of ["renewSeconds", "fullSeconds", "since", "stamp"]) {
    if (name in content.dataset) main.dataset[name] = content.dataset[name];
  }
  document.title = next.title;
  // A row that replaces that of the address is not its target any more.
  if (location.hash) next.getElementById(location.hash.slice(1))?.closest("tr")?.classList.add("target");
  if (content.innerHTML === main.innerHTML) return;
  const kept = remember();
  main.replaceChildren(...content.childNodes);
  restore(kept);
}

if (main) {
  // A log opens at its newest line.
  for (const box of main.querySelectorAll(`.listing[aria-label="Log"]`)) box.scrollTop = box.scrollHeight;
  // The page has no entity tag here. Its stamp is the first part of one.
  const state = { etag: `W/"${main.dataset.stamp || "none"}."`, rendered: performance.now() };
  const pause = () => Number(main.dataset.renewSeconds) * 1000;
  let timer = 0;
  const next = async () => {
    timer = 0;
    if (document.hidden) return;
    // The server may be away for a while. The next request shows that it is there again.
    if (!isBusy()) await renew(state).catch(() => {});
    if (timer === 0 && !document.hidden) timer = setTimeout(next, pause());
  };
  timer = setTimeout(next, pause());
  addEventListener("hashchange", () => main.querySelector("tr.target")?.classList.remove("target"));
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && timer === 0) next();
  });
}
