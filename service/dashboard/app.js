// The operator's page: polls GET /admin/status each second, draws it, and turns the one dial.
// Whatever comes from the API is set as text, never as markup: URLs are written by strangers.

const POLL_MS = 1000;
const TIMEOUT_MS = 5000;
const WINDOW_MS = 5 * 60 * 1000;
const GAP_MS = 3500; // points further apart than this are not joined: nothing is known in between
const RATE_OVER_MS = 5000; // pages handed out per second are averaged over this
const COUNTER = "next_pages_total"; // pages handed out so far, where the status has it
const KEY_NAME = "freshet-api-key";

const $ = (id) => document.getElementById(id);
const isNumber = (x) => typeof x === "number" && Number.isFinite(x);

// Numbers as people read them

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 3 });
const SUPERSCRIPT = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

function significant(x, digits = 3) {
  if (!isNumber(x)) return "–";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e6 || size < 1e-3) {
    const [mantissa, exponent] = x.toExponential(digits - 1).split("e");
    const raised = [...String(Number(exponent))].map((c) => SUPERSCRIPT[c]).join("");
    return `${Number(mantissa)}×10${raised}`;
  }
  return new Intl.NumberFormat("en", { maximumSignificantDigits: Math.max(digits, Math.floor(Math.log10(size)) + 1) }).format(x);
}

function count(x) {
  if (!isNumber(x)) return "–";
  for (const [size, letter] of [[1e9, "G"], [1e6, "M"]]) {
    if (x >= size) return `${new Intl.NumberFormat("en", { maximumSignificantDigits: 4 }).format(x / size)} ${letter}`;
  }
  return grouped.format(x);
}

function percent(x) {
  if (!isNumber(x)) return "–";
  const digits = x > 0.99 && x < 1 ? 2 : 1;
  const most = x < 1 ? 100 - 10 ** -digits : Infinity; // not quite all is never shown as all
  return `${Math.min(x * 100, most).toFixed(digits)} %`;
}

function duration(s) {
  if (!isNumber(s)) return "–";
  if (s < 0.001) return "0 s";
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  const whole = Math.round(s);
  for (const [unit, name, lower, lowerName] of [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
    if (whole >= unit) {
      const rest = Math.floor((whole % unit) / lower);
      return `${grouped.format(Math.floor(whole / unit))} ${name}${rest ? ` ${rest} ${lowerName}` : ""}`;
    }
  }
  return `${whole} s`;
}

function bytes(x) {
  if (!isNumber(x)) return "–";
  for (const [size, name] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (x >= size) return `${significant(x / size)} ${name}`;
  }
  return `${Math.round(x)} B`;
}

const perDay = (x) => (isNumber(x) ? `${significant(x)} per day` : "–");

function moment(text, now) {
  const at = Date.parse(text);
  if (!text || Number.isNaN(at)) return null;
  const distance = (at - now) / 1000;
  const [day, time] = new Date(at).toLocaleString("sv").split(" ");
  const isToday = new Date(now).toLocaleDateString("sv") === day;
  const clock = isToday ? time : `${day} ${time}`;
  if (Math.abs(distance) < 1) return { near: "now", clock, full: "now" };
  const near = distance > 0 ? `in ${duration(distance)}` : `${duration(-distance)} ago`;
  return { near, clock, full: `${near} (${clock})` };
}

// Talking to the API

class Refused extends Error {
  constructor(status, problem) {
    const errors = Array.isArray(problem.errors) ? problem.errors.map((e) => e.msg).filter(Boolean) : [];
    super(problem.detail || errors[0] || problem.title || `the service answered ${status}`);
    this.status = status;
    this.title = problem.title || "";
  }
}

async function call(path, { method = "GET", headers = {}, body } = {}) {
  const key = sessionStorage.getItem(KEY_NAME);
  const response = await fetch(path, {
    method,
    headers: { ...headers, ...(key ? { Authorization: `Bearer ${key}` } : {}), ...(body ? { "Content-Type": "application/json" } : {}) },
    body: body ? JSON.stringify(body) : undefined,
    cache: "no-store",
    credentials: "same-origin",
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  const answer = await response.json().catch((error) => {
    if (error instanceof SyntaxError) return null; // a proxy's error page
    throw error;
  });
  if (!response.ok) throw new Refused(response.status, answer ?? {});
  if (answer === null || typeof answer !== "object") throw new Refused(response.status, { detail: "the answer is not JSON" });
  return { answer, etag: response.headers.get("ETag"), now: Date.parse(response.headers.get("Date")) || Date.now() };
}

function inWords(error) {
  if (!(error instanceof Refused)) return "Connection lost: the service did not answer.";
  if (error.status === 401) return "An API key is needed: enter it under “API key”.";
  if (error.status === 403) return `This API key does not allow it: ${error.message}.`;
  if (error.status === 503) return `The store is unavailable: ${error.message}.`;
  return `${error.title || "Refused"} (${error.status}): ${error.message}.`;
}

// Small pieces of the page

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function say(node, kind, text) {
  node.dataset.kind = kind;
  setText(node, text);
}

function figure(id, text, exact = "") {
  const node = $(id);
  if (node.dataset.shown === text) return;
  node.dataset.shown = text;
  node.title = exact;
  const parts = text.split(" ").map((word, i) => {
    const part = document.createElement("span");
    part.className = /[\d–]/.test(word) ? "" : "unit";
    part.textContent = i ? ` ${word}` : word;
    return part;
  });
  node.replaceChildren(...parts);
}

function banner(kind, title, text) {
  const node = $("banner");
  node.hidden = !title;
  node.dataset.kind = kind;
  setText($("banner-title"), title);
  setText($("banner-text"), text);
}

function pill(state, text) {
  $("pill").dataset.state = state;
  setText($("pill-text"), text);
}

const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes, parent) {
  const node = document.createElementNS(SVG, name);
  place(node, attributes);
  parent?.append(node);
  return node;
}

function place(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
}

// Line charts

const CHART_HEIGHT = 150;
const INSET = { left: 54, right: 8, top: 8, bottom: 22 };

class Chart {
  constructor(id, { show, fromZero = true, atMost = Infinity }) {
    Object.assign(this, { show, fromZero, atMost, points: [], limit: null, hover: null });
    this.figure = $(id);
    this.now = this.figure.querySelector("output");
    this.name = this.figure.querySelector("figcaption span");
    this.root = svg("svg", { role: "img", height: CHART_HEIGHT }, this.figure);
    this.ticks = [0, 1, 2].map(() => ({
      line: svg("line", { class: "grid" }, this.root),
      text: svg("text", { "text-anchor": "end", dy: "0.35em" }, this.root),
    }));
    this.times = [5, 4, 3, 2, 1, 0].map((minutes) => {
      const anchor = minutes === 0 ? "end" : "middle";
      const node = svg("text", { "text-anchor": anchor, y: CHART_HEIGHT - 4 }, this.root);
      node.textContent = minutes ? `−${minutes} min` : "now";
      return { minutes, node };
    });
    this.area = svg("path", { class: "area" }, this.root);
    this.limitLine = svg("line", { class: "limit" }, this.root);
    this.line = svg("path", { class: "line" }, this.root);
    this.cursor = svg("line", { class: "cursor", visibility: "hidden" }, this.root);
    this.spot = svg("circle", { class: "spot", r: 4.5 }, this.root);
    this.waiting = svg("text", { class: "waiting", "text-anchor": "middle" }, this.root);
    this.root.addEventListener("pointermove", (event) => this.look(event.offsetX));
    this.root.addEventListener("pointerleave", () => this.look(null));
  }

  add(at, value) {
    if (isNumber(value)) this.points.push([at, value]);
    const oldest = at - WINDOW_MS - GAP_MS;
    while (this.points.length && this.points[0][0] < oldest) this.points.shift();
  }

  rename(name) {
    if (this.name.textContent === name) return;
    this.name.textContent = name;
    this.points = [];
  }

  look(x) {
    this.hover = x;
    this.draw(this.drawnAt ?? Date.now());
  }

  range() {
    const values = this.points.map((p) => p[1]);
    if (isNumber(this.limit)) values.push(this.limit);
    let high = Math.max(...values);
    let low = this.fromZero ? 0 : Math.min(...values);
    const least = this.fromZero ? 0 : 0.02;
    if (high - low < least) [low, high] = [(high + low - least) / 2, (high + low + least) / 2];
    if (high === low) high = low + 1;
    for (let step = niceStep((high - low) / 2); ; step = niceStep(step * 1.01)) {
      const base = Math.max(0, Math.floor(low / step + 1e-9) * step);
      if (base + 2 * step >= high * (1 - 1e-9)) return { low: base, step };
    }
  }

  draw(now) {
    this.drawnAt = now;
    const width = Math.max(200, this.root.clientWidth);
    const right = width - INSET.right;
    const bottom = CHART_HEIGHT - INSET.bottom;
    const x = (at) => right - ((now - at) / WINDOW_MS) * (right - INSET.left);
    this.root.setAttribute("viewBox", `0 0 ${width} ${CHART_HEIGHT}`);
    this.drawTimes(x, width);
    const points = this.points.filter(([at]) => at >= now - WINDOW_MS);
    const empty = points.length === 0;
    setText(this.waiting, empty ? "no value yet" : "");
    place(this.waiting, { x: (INSET.left + right) / 2, y: bottom * 0.36 });
    const { low, step } = empty ? { low: 0, step: 1 } : this.range();
    const y = (value) => bottom - ((value - low) / (2 * step)) * (bottom - INSET.top);
    this.drawTicks(low, step, y, right, empty);
    this.drawLimit(y, right, empty);
    const runs = split(points).map((run) => run.map(([at, value]) => [x(at), y(value)]));
    this.line.setAttribute("d", runs.map(path).join(""));
    this.area.setAttribute("d", this.fromZero ? runs.map((run) => `${path(run)}V${bottom}H${run[0][0].toFixed(1)}Z`).join("") : "");
    this.drawSpot(points, x, y, bottom, now);
    this.describe(points);
  }

  drawTimes(x, width) {
    const every = width < 360 ? 2 : 1;
    for (const { minutes, node } of this.times) {
      const shown = minutes < 5 && (every === 1 || minutes % 2 === 0);
      place(node, { x: x(this.drawnAt - minutes * 60000), visibility: shown ? "visible" : "hidden" });
    }
  }

  drawTicks(low, step, y, right, empty) {
    this.ticks.forEach(({ line, text }, i) => {
      const value = low + i * step;
      const at = y(value);
      place(line, { x1: INSET.left, x2: right, y1: at, y2: at });
      place(text, { x: INSET.left - 6, y: at });
      setText(text, empty || value > this.atMost * 1.0001 ? "" : this.show(Number(value.toPrecision(6)), true));
    });
  }

  drawLimit(y, right, empty) {
    const shown = isNumber(this.limit) && !empty;
    this.limitLine.setAttribute("visibility", shown ? "visible" : "hidden");
    if (shown) place(this.limitLine, { x1: INSET.left, x2: right, y1: y(this.limit), y2: y(this.limit) });
  }

  drawSpot(points, x, y, bottom, now) {
    const latest = points[points.length - 1];
    const hovered = this.hover === null ? null : nearest(points, (p) => Math.abs(x(p[0]) - this.hover));
    const shown = hovered ?? latest;
    this.spot.setAttribute("visibility", shown ? "visible" : "hidden");
    this.cursor.setAttribute("visibility", hovered ? "visible" : "hidden");
    if (!shown) return setText(this.now, "");
    place(this.spot, { cx: x(shown[0]), cy: y(shown[1]) });
    place(this.cursor, { x1: x(shown[0]), x2: x(shown[0]), y1: INSET.top, y2: bottom });
    const ago = hovered ? ` · ${duration((now - hovered[0]) / 1000)} ago` : "";
    setText(this.now, this.show(shown[1]) + ago);
  }

  describe(points) {
    const name = this.name.textContent;
    if (!points.length) return this.root.setAttribute("aria-label", `${name}: no value yet`);
    const values = points.map((p) => p[1]);
    const [least, most] = [Math.min(...values), Math.max(...values)].map((v) => this.show(v));
    const last = this.show(values[values.length - 1]);
    this.root.setAttribute("aria-label", `${name}: now ${last}; between ${least} and ${most} in the last five minutes`);
  }
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 2.5, 5, 10].find((m) => m * power >= least * (1 - 1e-9)) * power;
}

function split(points) {
  const runs = [];
  let last = -Infinity;
  for (const point of points) {
    if (point[0] - last > GAP_MS) runs.push([]);
    runs[runs.length - 1].push(point);
    last = point[0];
  }
  return runs;
}

const path = (run) => run.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

function nearest(points, distance) {
  return points.reduce((best, p) => (best === null || distance(p) < distance(best) ? p : best), null);
}

const charts = {
  freshness: new Chart("chart-freshness", {
    show: (v, isTick) => (isTick ? `${Number((v * 100).toFixed(2))} %` : percent(v)), fromZero: false, atMost: 1,
  }),
  flow: new Chart("chart-flow", { show: (v) => (v >= 1e5 ? count(v) : significant(v)) }),
  price: new Chart("chart-price", { show: (v) => (v >= 1e5 ? significant(v, 2) : significant(v)) }),
};

// Pages handed out per second, from a counter in the status; leases where there is none

let counted = [];

function flow(status, at) {
  const total = status[COUNTER];
  const isRate = isNumber(total);
  charts.flow.rename(isRate ? "Pages handed out per second" : "Leases out");
  charts.flow.limit = isRate ? status.bandwidth_crawls_per_second : null;
  if (!isRate) return status.leases;
  const last = counted[counted.length - 1];
  if (last && (total < last[1] || at - last[0] > GAP_MS)) counted = []; // counted anew, or not seen for a while
  counted.push([at, total]);
  while (counted.length > 2 && counted[1][0] <= at - RATE_OVER_MS) counted.shift();
  const [since, before] = counted[0];
  return at > since ? ((total - before) * 1000) / (at - since) : null;
}

// The numbers

let lastStatus = null;
let lastSeenAt = null;

function showStatus(status) {
  const at = Date.now();
  lastStatus = status;
  lastSeenAt = at;
  const { pages, price } = status;
  const bandwidth = status.bandwidth_crawls_per_second;
  figure("bandwidth", grouped.format(bandwidth));
  setText($("bandwidth-note"), bandwidthNote(pages, bandwidth));
  figure("pages", count(pages), grouped.format(pages));
  figure("leases", count(status.leases), grouped.format(status.leases));
  figure("freshness", percent(status.expected_freshness));
  setText($("freshness-note"), freshnessNote(status));
  figure("price", significant(price), String(price));
  figure("lag", duration(status.repriced_lag_s));
  setText($("lag-note"), status.repriced_lag_s === null && pages > 0 ? "not every shard was swept yet" : "age of the oldest ranking");
  figure("memory", bytes(status.bytes_per_page));
  showEmpty(pages === 0);
  charts.price.add(at, price);
  charts.freshness.add(at, status.expected_freshness);
  charts.flow.add(at, flow(status, at));
  showShards();
  dial.follow(bandwidth);
}

function bandwidthNote(pages, bandwidth) {
  if (bandwidth === 0) return "Paused: no page is handed out.";
  const daily = `${bandwidth >= 12 ? count(Number((bandwidth * 86400).toPrecision(3))) : grouped.format(Math.round(bandwidth * 86400))} a day`;
  return pages > 0 ? `${daily} · all pages once in ${duration(pages / bandwidth)}` : daily;
}

function freshnessNote(status) {
  if (isNumber(status.expected_freshness)) return "of readers find a fresh copy";
  return status.pages > 0 ? "known after the first sweep" : "known once there are pages";
}

function showEmpty(isEmpty) {
  $("empty").hidden = !isEmpty;
  if (!isEmpty) return;
  const here = new URL("pages", document.baseURI).href;
  const key = sessionStorage.getItem(KEY_NAME) ? ` \\\n  -H "Authorization: Bearer $FRESHET_KEY"` : "";
  const body = `'{"pages": [{"url": "https://example.com/"}]}'`;
  setText($("empty-curl"), `curl -X PUT '${here}'${key} \\\n  -H 'Content-Type: application/json' \\\n  -d ${body}`);
}

function showShards() {
  const { shards } = lastStatus;
  const most = Math.max(0, ...shards.map((s) => s.pages));
  const share = lastStatus.pages > 0 ? ` · the largest holds ${percent(most / lastStatus.pages)} of the pages` : "";
  setText($("shards-note"), `${shards.length}${share}`);
  if (!$("shards").open) return;
  const body = $("shards-body");
  while (body.rows.length > shards.length) body.deleteRow(-1);
  while (body.rows.length < shards.length) addShardRow(body);
  shards.forEach((shard, i) => {
    const [pages, leases, lag] = body.rows[i].querySelectorAll("td");
    setText(pages, grouped.format(shard.pages));
    setText(leases, grouped.format(shard.leases));
    setText(lag, duration(shard.repriced_lag_s));
  });
}

function addShardRow(body) {
  const row = body.insertRow();
  const head = document.createElement("th");
  head.scope = "row";
  head.textContent = String(body.rows.length - 1);
  row.append(head);
  for (let i = 0; i < 3; i += 1) row.insertCell();
}

// The dial: what is typed is applied only to the version it was typed against

const dial = {
  input: $("dial-input"),
  said: $("dial-said"),
  etag: null,
  known: null,
  isTouched: false,
  isReading: null,

  read() {
    this.isReading ??= this.fetch().finally(() => { this.isReading = null; });
    return this.isReading;
  },

  async fetch() {
    const { answer, etag } = await call("admin/bandwidth");
    if (this.isTouched && this.etag !== null) return;
    this.take(answer.crawls_per_second, etag);
  },

  take(value, etag) {
    this.etag = etag;
    this.known = value;
    this.input.placeholder = String(value);
    if (!this.isTouched) this.input.value = String(value);
  },

  follow(shown) {
    if ((this.etag === null || shown !== this.known) && !this.isTouched && !$("dial-set").disabled) this.read().catch(() => {});
  },

  touch() {
    this.isTouched = true;
    this.input.removeAttribute("aria-invalid");
    say(this.said, "", "");
  },

  fill(how) {
    const now = lastStatus?.bandwidth_crawls_per_second ?? this.known ?? 0;
    this.input.value = String({ half: now / 2, double: now * 2, pause: 0 }[how]);
    this.touch();
    $("dial-set").focus();
  },

  async set() {
    if (this.input.value.trim() === "") return this.refuse("Enter crawls per second as a number; 0 pauses.");
    const wanted = Number(this.input.value);
    this.isTouched = true;
    $("dial-set").disabled = true;
    try {
      if (this.etag === null) await this.fetch();
      const headers = this.etag === null ? {} : { "If-Match": this.etag };
      const { answer, etag } = await call("admin/bandwidth", { method: "PUT", headers, body: { crawls_per_second: wanted } });
      this.isTouched = false;
      this.take(answer.crawls_per_second, etag);
      this.applied(answer.crawls_per_second);
    } catch (error) {
      await this.failed(error, wanted);
    } finally {
      $("dial-set").disabled = false;
    }
  },

  applied(value) {
    this.input.removeAttribute("aria-invalid");
    figure("bandwidth", grouped.format(value));
    say(this.said, "good", value === 0 ? "Paused from the next slot on." : `Set to ${grouped.format(value)} crawls/s, obeyed from the next slot on.`);
  },

  async failed(error, wanted) {
    if (!(error instanceof Refused) || error.status !== 412) return this.refuse(`Not set. ${inWords(error)}`);
    this.etag = null;
    this.known = null;
    await this.fetch().catch(() => {});
    const theirs = this.known === null ? "" : ` to ${grouped.format(this.known)} crawls/s`;
    this.refuse(`Not set: someone else changed the bandwidth${theirs} meanwhile. Press Set again to make it ${grouped.format(wanted)}.`);
  },

  refuse(text) {
    this.input.setAttribute("aria-invalid", "true");
    say(this.said, "bad", text);
  },
};

// Why this page?

async function explain(url) {
  const said = $("why-said");
  if (!url) {
    $("why-answer").hidden = true;
    return say(said, "bad", "Paste the URL of a page.");
  }
  try {
    const { answer, now } = await call(`pages?${new URLSearchParams({ url })}`);
    say(said, "", "");
    showWhy(answer, now);
    $("why-answer").hidden = false;
  } catch (error) {
    $("why-answer").hidden = true;
    const isUnknown = error instanceof Refused && error.status === 404;
    say(said, "bad", isUnknown ? `Not registered: ${url}` : inWords(error));
  }
}

function showWhy(page, now) {
  setText($("why-address"), page.url);
  $("why-state").dataset.state = page.state;
  setText($("why-state"), page.state);
  setText($("why-sentence"), sentence(page, now));
  showBar(page.value, page.price);
  fillTable($("why-now"), nowRows(page, now));
  fillTable($("why-model"), modelRows(page));
}

const INSTANT = /\d{4}-\d\d-\d\dT[\d:.]+Z/g;

function sentence(page, now) {
  const reason = String(page.reason).replace(`${page.state}: `, "").replace(INSTANT, (text) => {
    const at = moment(text, now);
    return at ? `${at.clock} (${at.near})` : text;
  });
  const first = `${reason.charAt(0).toUpperCase()}${reason.slice(1)}.`;
  const crawled = moment(page.last_crawled_at, now);
  if (!crawled) return first;
  const due = page.state === "waiting" ? moment(page.due_at, now) : null;
  return `${first} Last crawled ${crawled.near}; the copy is fresh with a chance of ${percent(page.freshness)}${due ? `, and due ${due.near}` : ""}.`;
}

function nowRows(page, now) {
  const last = page.outcomes.map(outcomeText).join(", ");
  return [
    ["Importance", significant(page.importance)],
    ["Freshness", percent(page.freshness)],
    ["Last crawled", moment(page.last_crawled_at, now)?.full ?? "never"],
    ["Effective elapsed", duration(page.effective_elapsed_s)],
    ["Signals since", grouped.format(page.signals)],
    ["Due", moment(page.due_at, now)?.full ?? "–"],
    ["Host rests until", moment(page.host_rests_until, now)?.full ?? "free now"],
    ["Last outcome", last || "–"],
  ];
}

const outcomeText = (outcome) => (typeof outcome === "string" ? outcome : String(outcome?.result ?? outcome?.status ?? "–"));

function modelRows({ model, last_crawled_at: crawledAt }) {
  const isRanged = isNumber(model.change_rate_low) && isNumber(model.change_rate_high);
  const range = isRanged ? ` (${significant(model.change_rate_low)} to ${significant(model.change_rate_high)})` : "";
  const sources = Object.entries(model.sources ?? {}).map(([name, s]) => `${name} ${grouped.format(s?.signals ?? 0)}`);
  return [
    ["Changes", perDay(model.change_rate_per_day) + range],
    ["Changes nobody signals", perDay(model.silent_rate_per_day)],
    ["Signals", perDay(model.signal_rate_per_day)],
    ["Precision", percent(model.precision)],
    ["Recall", percent(model.recall)],
    ["Signals by source", sources.join(", ") || "none"],
    ["Learned", learned(model, crawledAt)],
  ];
}

function learned(model, crawledAt) {
  if (model.fixed) return "no, fixed by you";
  return crawledAt ? "yes, from outcomes" : "not yet: never crawled";
}

function fillTable(body, rows) {
  body.replaceChildren(...rows.map(([name, value]) => {
    const row = document.createElement("tr");
    const head = document.createElement("th");
    head.scope = "row";
    head.textContent = name;
    row.append(head);
    row.insertCell().textContent = value;
    return row;
  }));
}

function ratio(value, price) {
  if (price === 0) return "above the";
  return value < 2 * price ? `${percent(value / price)} of the` : `${significant(value / price)} times the`;
}

function showBar(value, price) {
  const most = Math.max(value, price) * 1.25 || 1;
  const share = (x) => `${((100 * x) / most).toFixed(2)}%`;
  const root = svg("svg", { role: "img", "aria-label": `Value ${significant(value)}, price ${significant(price)}` });
  svg("rect", { class: "track", x: 0, y: 5, width: "100%", height: 18, rx: 6 }, root);
  svg("rect", { class: "value", x: 0, y: 5, width: share(value), height: 18, rx: 6 }, root);
  svg("line", { class: "mark", x1: share(price), x2: share(price), y1: 0, y2: 28 }, root);
  $("why-bar").replaceChildren(root);
  setText($("why-value"), `A crawl is worth ${significant(value)}`);
  setText($("why-price"), `${ratio(value, price)} price of ${significant(price)}`);
}

// The loop: one request at a time, none while nobody looks, and on after any failure

let timer = null;
let isPolling = false;
let trouble = null; // status of the last refusal, 0 for no answer at all

async function poll() {
  if (isPolling || document.hidden) return;
  isPolling = true;
  clearTimeout(timer);
  const startedAt = Date.now();
  const seen = await call("admin/status").catch((error) => ({ error }));
  isPolling = false;
  if (!document.hidden) timer = setTimeout(poll, Math.max(50, POLL_MS - (Date.now() - startedAt)));
  if (seen.error) disconnected(seen.error);
  else connected(seen.answer);
  drawCharts();
}

function drawCharts() {
  Object.values(charts).forEach((chart) => chart.draw(Date.now()));
}

function connected(status) {
  const isPaused = status.bandwidth_crawls_per_second === 0;
  trouble = null;
  $("glance").classList.remove("stale");
  pill(isPaused ? "paused" : "live", isPaused ? "Paused" : "Live");
  banner("", "", "");
  showStatus(status);
}

function disconnected(error) {
  const isNew = trouble !== (error.status ?? 0);
  trouble = error.status ?? 0;
  $("glance").classList.add("stale");
  const since = lastSeenAt === null ? "" : ` The numbers are from ${new Date(lastSeenAt).toLocaleTimeString("sv")}.`;
  if (!(error instanceof Refused)) {
    pill("lost", "Connection lost");
    return banner("lost", "Connection lost.", `Trying again every second.${since}`);
  }
  if (error.status === 401 && isNew) $("key").open = true;
  pill("lost", { 401: "Key needed", 403: "Not allowed" }[error.status] ?? "Not available");
  return banner("lost", refusalTitle(error), `${inWords(error)}${since}`);
}

function refusalTitle(error) {
  if (error.status === 401 && sessionStorage.getItem(KEY_NAME)) return "This API key is not accepted (401).";
  return `${error.title || "Not available"} (${error.status}).`;
}

// Wiring

$("dial").addEventListener("submit", (event) => { event.preventDefault(); dial.set(); });
for (const kind of ["input", "change"]) dial.input.addEventListener(kind, () => dial.touch());
dial.input.addEventListener("focus", () => { if (!dial.isTouched) dial.read().catch(() => {}); });
document.querySelectorAll("[data-fill]").forEach((button) => button.addEventListener("click", () => dial.fill(button.dataset.fill)));
$("why").addEventListener("submit", (event) => { event.preventDefault(); explain($("why-url").value.trim()); });
$("shards").addEventListener("toggle", () => { if (lastStatus) showShards(); });
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : poll()));
window.addEventListener("resize", drawCharts);

$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = $("key-input").value.trim();
  const isSendable = /^[!-~]+$/.test(key);
  setText($("key-said"), isSendable ? "" : "A key is made of letters, digits and signs without spaces.");
  if (isSendable) useKey(key);
});
$("key-forget").addEventListener("click", () => useKey(null));
document.addEventListener("keydown", (event) => { if (event.key === "Escape") closeKey(); });

function useKey(key) {
  if (key) sessionStorage.setItem(KEY_NAME, key);
  else sessionStorage.removeItem(KEY_NAME);
  $("key-input").value = "";
  closeKey();
  markKey();
  poll();
}

function closeKey() {
  if ($("key").open) {
    $("key").open = false;
    $("key").querySelector("summary").focus();
  }
}

function markKey() {
  $("key").toggleAttribute("data-set", sessionStorage.getItem(KEY_NAME) !== null);
}

$("empty-copy").addEventListener("click", async (event) => {
  const button = event.currentTarget;
  try {
    await navigator.clipboard.writeText($("empty-curl").textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  } catch {
    getSelection().selectAllChildren($("empty-curl")); // no clipboard without TLS: select it instead
  }
});

markKey();
poll();
