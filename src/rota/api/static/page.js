// The live page: reads the lists, then keeps them fresh by the stream of changes.
// Whatever users named or printed reaches the page through textContent only.
"use strict";

const PAGE = 50;
const LOG_CHARS_MAX = 200_000; // a longer log is for `rota logs`; a tab must not choke on it
const $ = (id) => document.getElementById(id);

const view = { shown: PAGE, job: null, stale: new Set(), timer: null, source: null };

class SignedOut extends Error {}

async function call(method, path) {
  const answer = await fetch(path, { method, headers: { Accept: "application/json" } });
  if (answer.status === 401) throw new SignedOut();
  const body = answer.status === 204 ? null : await answer.json();
  if (!answer.ok) throw new Error(body.detail || answer.statusText);
  return body;
}

function el(tag, text, className) {
  const node = document.createElement(tag);
  if (text !== undefined && text !== null) node.textContent = text;
  if (className) node.className = className;
  return node;
}

function row(cells, wide = []) {
  const tr = el("tr");
  cells.forEach((cell, at) => {
    const td = cell instanceof Node ? el("td") : el("td", cell);
    if (cell instanceof Node) td.append(cell);
    if (wide.includes(at)) td.className = "wide";
    tr.append(td);
  });
  return tr;
}

function status(word, note) {
  const span = el("span", word, `s s-${/^[a-z_]+$/.test(word) ? word : "other"}`);
  if (note) span.append(" ", el("span", note, "note"));
  return span;
}

const count = (n) => Number(n || 0).toLocaleString();

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (n >= 1024 && at < units.length - 1) { n /= 1024; at += 1; }
  return `${Number(n.toFixed(1))} ${units[at]}`;
}

function ago(time) {
  if (!time) return "";
  const s = Math.round((Date.now() - new Date(time)) / 1000);
  if (s < 2) return "now";
  if (s < 120) return `${s} s ago`;
  if (s < 7200) return `${Math.round(s / 60)} min ago`;
  if (s < 172800) return `${Math.round(s / 3600)} h ago`;
  return new Date(time).toLocaleDateString();
}

function took(job) {
  if (!job.started_at) return "";
  const s = (new Date(job.finished_at || Date.now()) - new Date(job.started_at)) / 1000;
  return s < 0 ? "" : s < 120 ? `${s.toFixed(1)} s` : `${Math.round(s / 60)} min`;
}

// Drawing

async function drawOverview() {
  const stats = await call("GET", "/stats");
  const cards = [
    ["Waiting", (stats.jobs.pending || 0) + (stats.jobs.queued || 0)],
    ["Running", (stats.jobs.running || 0) + (stats.jobs.cancelling || 0)],
    ["Succeeded", stats.jobs.succeeded],
    ["Failed", stats.jobs.failed],
    ["Submitted", stats.submitted_total],
    ["Workers", stats.workers.online],
  ];
  const cpu = stats.resources.cpu;
  const list = cards.map(([name, value]) => [name, count(value)]);
  if (cpu) list.push(["Cpu in use", `${cpu.used} / ${cpu.capacity}`]);
  $("overview").replaceChildren(...list.map(([name, value]) => {
    const card = el("div");
    card.append(el("dt", name), el("dd", value));
    return card;
  }));
}

async function drawJobs() {
  const query = new URLSearchParams({ limit: String(view.shown) });
  if ($("status").value) query.set("status", $("status").value);
  if ($("queue").value) query.set("queue", $("queue").value);
  const page = await call("GET", `/jobs?${query}`);
  $("jobs").replaceChildren(...page.items.map(jobRow));
  $("no-jobs").hidden = page.items.length > 0;
  $("more").hidden = page.next_cursor === null || view.shown >= 1000;
}

function jobRow(job) {
  const progress = job.progress !== null && job.status === "running";
  const note = progress ? `${Math.round(job.progress * 100)} %` : job.reason;
  const tries = `${job.attempt} / ${job.retry.max_attempts}`;
  const tr = row([job.name, status(job.status, note), job.queue, tries, ago(job.created_at), took(job)], [2, 3, 5]);
  tr.className = "job";
  tr.tabIndex = 0;
  tr.addEventListener("click", () => openJob(job.job_id));
  tr.addEventListener("keydown", (event) => { if (event.key === "Enter") openJob(job.job_id); });
  return tr;
}

async function drawWorkers() {
  const { items } = await call("GET", "/workers?limit=100");
  $("workers").replaceChildren(...items.map((worker) => {
    const { cpu, memory } = worker.resources;
    return row([
      worker.name, status(worker.status), count(worker.executions.length),
      `${cpu.used} / ${cpu.capacity}`, `${bytes(memory.used)} / ${bytes(memory.capacity)}`,
    ], [4]);
  }));
  $("no-workers").hidden = items.length > 0;
}

async function drawQueues() {
  const { items } = await call("GET", "/queues?limit=200");
  $("queues").replaceChildren(...items.map((queue) => {
    const name = el("span", queue.name);
    if (queue.paused) name.append(" ", status("paused"));
    const limit = queue.max_workers === null ? "–" : count(queue.max_workers);
    const { pending, queued, running } = queue.depth;
    return row([name, count(pending), count(queued), count(running), limit], [4]);
  }));
  $("no-queues").hidden = items.length > 0;
  const chosen = $("queue").value;
  const names = ["", ...items.map((queue) => queue.name)];
  $("queue").replaceChildren(...names.map((name) => {
    const option = el("option", name || "all");
    option.value = name;
    return option;
  }));
  $("queue").value = names.includes(chosen) ? chosen : "";
}

// One job

async function openJob(jobId) {
  view.job = jobId;
  $("act-said").textContent = "";
  $("detail-log").textContent = "";
  await guarded(drawJob);
  if (!$("detail").open) $("detail").showModal();
}

async function drawJob() {
  const jobId = view.job;
  if (!jobId) return;
  const [job, why] = await Promise.all([
    call("GET", `/jobs/${jobId}`), call("GET", `/jobs/${jobId}/why`),
  ]);
  if (view.job !== jobId) return;
  const ended = job.finished_at !== null;
  $("detail-name").replaceChildren(`${job.name} `, status(job.status, job.reason));
  $("detail-why").textContent = [why.cause, ...why.others].map((cause) => cause.message).join(" · ");
  const facts = [
    ["Id", job.job_id], ["Queue", job.queue], ["Task", JSON.stringify(job.task)],
    ["Payload", JSON.stringify(job.payload)], ["Priority", job.priority],
    ["Attempt", `${job.attempt} of ${job.retry.max_attempts}`], ["Worker", job.worker_id],
    ["Submitted", job.created_at], ["Started", job.started_at], ["Ended", job.finished_at],
    ["Message", job.message],
    ["Result", job.result === null ? null : JSON.stringify(job.result, null, 1)],
    ["Error", job.error === null ? null : JSON.stringify(job.error, null, 1)],
  ].filter(([, value]) => value !== null && value !== undefined);
  $("detail-facts").replaceChildren(...facts.flatMap(([name, value]) => [el("dt", name), el("dd", value)]));
  $("act-cancel").hidden = ended;
  $("act-retry").hidden = !ended || job.status === "succeeded";
  await drawLog(jobId);
}

async function drawLog(jobId) {
  const answer = await fetch(`/jobs/${jobId}/logs`);
  if (!answer.ok || view.job !== jobId) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (text.length < LOG_CHARS_MAX) {
    const { done, value } = await reader.read();
    if (done) break;
    text += value;
  }
  if (text.length >= LOG_CHARS_MAX) {
    reader.cancel();
    text = `${text.slice(0, LOG_CHARS_MAX)}\n… more with: rota logs ${jobId}`;
  }
  if (view.job === jobId) $("detail-log").textContent = text || "(nothing printed)";
}

async function act(method, verb) {
  try {
    await call(method, `/jobs/${view.job}/${verb}`);
    $("act-said").textContent = "done";
  } catch (error) {
    $("act-said").textContent = error.message;
  }
  touch("jobs", "overview", "detail");
}

// Staying fresh: changes only mark what is stale; each list is read at most twice a second.

const draw = {
  overview: drawOverview, jobs: drawJobs, workers: drawWorkers, queues: drawQueues, detail: drawJob,
};

function touch(...names) {
  names.forEach((name) => view.stale.add(name));
  if (view.timer === null) view.timer = setTimeout(refresh, 500);
}

async function refresh() {
  const names = [...view.stale];
  view.stale.clear();
  for (const name of names) await guarded(draw[name]);
  view.timer = null;
  if (view.stale.size) touch();
}

function changed(change) {
  if (change.kind === "worker") touch("workers", "overview");
  else if (change.kind === "queue") touch("queues");
  else touch("jobs", "overview", "queues", "workers");
  if (view.job && (change.id === view.job || change.job_id === view.job)) touch("detail");
}

function watch() {
  view.source?.close();
  const source = new EventSource("/stream"); // sends Last-Event-ID itself when it comes back
  view.source = source;
  source.onopen = () => { say("live", "on"); touch("overview", "jobs", "workers", "queues"); };
  source.onmessage = (event) => changed(JSON.parse(event.data));
  source.addEventListener("reset", () => touch(...Object.keys(draw)));
  source.onerror = () => {
    say("not connected, trying again", "off");
    if (source.readyState === EventSource.CLOSED) setTimeout(start, 2000);
  };
}

function say(text, state) {
  $("live").textContent = text;
  $("live").className = `live ${state}`;
}

async function guarded(work) {
  try {
    await work();
    return true;
  } catch (error) {
    if (error instanceof SignedOut) showSignIn();
    else say(error.message, "off");
    return false;
  }
}

// Signing in

function showSignIn() {
  view.source?.close();
  $("main").hidden = true;
  $("sign-out").hidden = true;
  $("sign-in").hidden = false;
  const expired = new URLSearchParams(location.search).has("signin");
  $("sign-in-why").textContent = expired ? "That link was used already; the server's next start prints a new one." : "";
  say("signed out", "off");
}

async function signIn(event) {
  event.preventDefault();
  const token = $("token").value.trim();
  const answer = await fetch("/session", { method: "POST", headers: { Authorization: `Bearer ${token}` } });
  $("token").value = "";
  if (answer.ok) start();
  else $("sign-in-why").textContent = "This token is not known here.";
}

async function start() {
  if (!(await guarded(drawOverview))) {
    if ($("sign-in").hidden) setTimeout(start, 2000);
    return;
  }
  history.replaceState(null, "", "/");
  $("sign-in").hidden = true;
  $("main").hidden = false;
  $("sign-out").hidden = false;
  watch();
}

$("sign-in-form").addEventListener("submit", signIn);
$("sign-out").addEventListener("click", async () => {
  await fetch("/session", { method: "DELETE" });
  showSignIn();
});
$("status").addEventListener("change", () => touch("jobs"));
$("queue").addEventListener("change", () => touch("jobs"));
$("more").addEventListener("click", () => { view.shown = Math.min(view.shown + 100, 1000); touch("jobs"); });
$("detail-close").addEventListener("click", () => $("detail").close());
$("detail").addEventListener("close", () => { view.job = null; });
$("act-cancel").addEventListener("click", () => act("PUT", "cancel"));
$("act-retry").addEventListener("click", () => act("POST", "retry"));
setInterval(() => { if (!document.hidden && !$("main").hidden) touch("jobs", "workers"); }, 10_000);
start();
