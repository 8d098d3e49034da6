// The explorer: reads the service's own API and shows it. The address after # says what is shown:
// #/dataset/model/version?id=…&type=…
import { drawAround } from "/around.js";
import { csvOfLinks, showModels, showRuns } from "/lists.js";

const at = (id) => document.getElementById(id);
const state = { models: [], dataset: "", model: "", version: "current", answers: [], turn: 0 };

// -- asking ----------------------------------------------------------------------------------------------------------

class Told extends Error {}

async function ask(path, query = {}) {
  const token = sessionStorage.getItem("token");
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== undefined);
  const address = given.length ? `${path}?${new URLSearchParams(given)}` : path;
  let found;
  try {
    found = await fetch(address, { headers: token ? { Authorization: `Bearer ${token}` } : {} });
  } catch {
    throw new Told("the service does not answer: is `graphmill serve` still running?");
  }
  const said = await found.json().catch(() => ({ error: `the service answered with status ${found.status}` }));
  if (found.status === 401) at("token").hidden = false;
  if (!found.ok) throw new Told(said.error);
  return said;
}

const base = () => `/v1/${encodeURIComponent(state.dataset)}/${encodeURIComponent(state.model)}`;
const of = (what, query) => ask(`${base()}/${encodeURIComponent(state.version)}/${what}`, query);

function tell(text) {
  at("message").textContent = text;
}

// Runs a job; what the service says of a mistake is shown in `where`, or above the page.
async function attempt(job, where) {
  try {
    return await job();
  } catch (error) {
    if (!(error instanceof Told)) throw error;
    if (where) where.replaceChildren(make("p", { class: "quiet" }, error.message));
    else tell(error.message);
    return null;
  }
}

// -- making ----------------------------------------------------------------------------------------------------------

export function make(name, attributes = {}, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== false && value !== undefined) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...inside.filter((each) => each !== null && each !== undefined));
  return made;
}

export const number = (value) => (typeof value === "number" ? (Number.isInteger(value) ? value.toLocaleString("en") : value.toPrecision(4)) : value ?? "");
const words = (name) => name.replaceAll("_", " ");

// columns: [title, cell(row) → text or element, is it a number]
export function table(caption, columns, rows, kind = "") {
  const head = make("tr", {}, ...columns.map(([title, , right]) => make("th", { scope: "col", class: right ? "number" : "" }, title)));
  const body = rows.map((row) => make("tr", {}, ...columns.map(([title, cell, right]) => make("td", { class: right ? "number" : "", "data-title": title }, cell(row)))));
  const made = make("table", { "aria-label": caption, class: kind }, make("thead", {}, head), make("tbody", { onkeydown: byArrows }, ...body));
  return make("div", { class: "scroll" }, made);
}

// Arrow keys go up and down the buttons of a table.
function byArrows(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const all = [...event.currentTarget.querySelectorAll("button.node")];
  const here = all.indexOf(document.activeElement);
  if (!step || here < 0) return;
  event.preventDefault();
  all[Math.min(Math.max(here + step, 0), all.length - 1)].focus();
}

function nodeButton({ id, name, type }) {
  const known = type ?? "";
  return make("span", {}, make("button", { type: "button", class: "node", onclick: () => go({ id, type: known }) }, name || id), " ", make("small", {}, known));
}

const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`); // for a shell

export function command(text) {
  const shown = make("code", {}, text);
  const copy = make("button", { type: "button", "aria-label": `Copy: ${text}` }, "Copy");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
      setTimeout(() => { copy.textContent = "Copy"; }, 1500);
    } catch {
      getSelection().selectAllChildren(shown); // without a clipboard, as over plain HTTP from another machine
    }
  });
  return make("div", { class: "command" }, shown, copy);
}

// -- where one is ----------------------------------------------------------------------------------------------------

function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [dataset = "", asset = "", version = "current"] = path.split("/").map(decodeURIComponent);
  const asked = new URLSearchParams(query || "");
  return { dataset, asset, version, id: asked.get("id") || "", type: asked.get("type") || "" };
}

function go({ model, version, id, type }) {
  const [dataset, name] = model ? model.split("/") : [state.dataset, state.model];
  const path = [dataset, name, version ?? (model ? "current" : state.version)].map(encodeURIComponent).join("/");
  const node = id ? `?${new URLSearchParams(type ? { id, type } : { id })}` : "";
  location.hash = `#/${path}${node}`;
}

// Assets are called after their model: hgt_embeddings leads to hgt, and files and graphs to a model of theirs.
function modelOf({ dataset, asset }) {
  const own = state.models.filter((each) => each.dataset === dataset);
  const fits = own.filter(({ model }) => asset === model || asset.startsWith(`${model}_`));
  const longest = fits.sort((a, b) => b.model.length - a.model.length)[0];
  return { found: longest || own[0] || (dataset ? null : state.models[0]) || null, meant: Boolean(longest) || !asset };
}

async function arrive() {
  const wanted = place();
  at("index").open = !wanted.dataset;
  state.turn += 1;
  const { turn } = state;
  const { found, meant } = modelOf(wanted);
  tell(found && !meant ? `${wanted.dataset}/${wanted.asset} is of no model that is promoted; this is ${found.dataset}/${found.model}.` : "");
  if (!found) {
    const there = state.models.map(({ dataset, model }) => `${dataset}/${model}`).join(", ");
    tell(there
      ? `Nothing of ${wanted.dataset}/${wanted.asset} is promoted; there are versions of ${there}.`
      : "Nothing is promoted yet: graphmill promote RUN makes a run the live version of its model.");
    return;
  }
  const fresh = found.dataset !== state.dataset || found.model !== state.model || wanted.version !== state.version || !state.shown;
  Object.assign(state, { dataset: found.dataset, model: found.model, version: wanted.version });
  at("model").value = `${state.dataset}/${state.model}`;
  if (fresh) {
    state.shown = await attempt(() => showModel(turn));
    if (!state.shown || turn !== state.turn) return;
  }
  if (wanted.id) await showNode(wanted, turn);
}

// -- the model -------------------------------------------------------------------------------------------------------

async function showModel(turn) {
  const { versions } = await ask(base());
  const live = versions.find((each) => each.live);
  at("version").replaceChildren(
    make("option", { value: "current" }, live ? `live: ${live.version}` : "live: none"),
    ...versions.map((each) => make("option", { value: each.version }, each.version)),
  );
  at("version").value = state.version;
  showVersions(versions);
  const report = await of("report");
  if (turn !== state.turn) return false;
  const { about } = report;
  document.title = `${state.dataset}/${state.model} · graphmill explorer`;
  state.answers = about.answers;
  const vectors = state.answers.includes("vector");
  const what = vectors ? `${number(about.rows)} vectors of ${about.dim}` : `${number(about.rows)} nodes, no vectors`;
  at("summary").textContent = `${about.system}, ${what}, ${report.version}`;
  at("node").replaceChildren(make("p", { class: "quiet" }, "Search a node to see what is near it and what is predicted for it."));
  const { verdict } = about;
  at("verdict").hidden = !verdict;
  if (verdict) at("verdict").replaceChildren(make("strong", { class: verdict.word }, words(verdict.word)), `. ${verdict.sentence}`);
  at("many").hidden = !state.answers.includes("links");
  at("around").hidden = true;
  showReport(report.html);
  return true;
}

const nothing = (what) => make("p", { class: "quiet" }, what);

// The report has no scripts, and the sandbox lets it run none.
function showReport(html) {
  if (!html) return at("report").replaceChildren(nothing("The version has no report: promote its run again."));
  const frame = make("iframe", { title: "Report of the run when it was promoted", sandbox: "allow-same-origin" });
  const fit = () => { frame.style.height = `${frame.contentDocument.documentElement.offsetHeight}px`; };
  frame.addEventListener("load", () => new ResizeObserver(fit).observe(frame.contentDocument.documentElement));
  frame.srcdoc = html;
  return at("report").replaceChildren(frame);
}

function showVersions(versions) {
  const name = `${state.dataset}/${state.model}`;
  at("versions").replaceChildren(table("Versions", [
    ["version", (row) => make("span", { class: row.live ? "best" : "" }, `${row.live ? "→ " : ""}${row.version}${row.live ? " (live)" : ""}`)],
    ["when", (row) => row.when.replace("T", " ").replace("Z", "")],
    ["verdict", (row) => make("span", { class: row.verdict.word ?? "", title: row.verdict.sentence ?? "" }, row.verdict.word ?? "")],
    [`figures`, (row) => (row.valid === null ? "" : `${row.metric} ${number(row.valid)}, test ${number(row.test)}`)],
    ["why", (row) => `${row.kind}${row.why ? `: ${row.why}` : ""}${row.by ? ` (${row.by})` : ""}`],
    ["commands", (row) => make("div", {}, ...(row.live
      // a rollback needs an older version that was live
      ? versions.slice(versions.indexOf(row) + 1).filter((each) => each.kind !== "never live").slice(0, 1).map(() => command(`graphmill rollback ${name}`))
      : [command(`graphmill rollback ${name} ${row.version}`), command(`graphmill promote ${quoted(row.run_dir)}`)]))],
  ], versions, "stacked"));
}

// -- a node ----------------------------------------------------------------------------------------------------------

async function nodeOf(id, type) {
  const [node] = (await of("search", { q: id, type, k: 1 })).nodes;
  if (!node) throw new Told(`There is no node '${id}'.`);
  return { node };
}

async function showNode({ id, type }, turn) {
  const where = at("node");
  const vectors = state.answers.includes("vector");
  const found = await attempt(() => (vectors ? of("neighbors", { id, type, k: 10 }) : nodeOf(id, type)), where);
  if (!found || turn !== state.turn) return;
  const { node } = found;
  at("search").value = node.name || node.id;
  const parts = [
    make("h3", { id: "shown", tabindex: "-1" }, node.name || node.id, make("small", {}, ` ${node.type}, ${node.id}`)),
  ];
  if (vectors) {
    const near = table("Neighbours", [["node", nodeButton], ["cosine", (row) => number(row.cosine), true]], found.neighbors);
    parts.push(make("h3", {}, "Neighbours"), found.neighbors.length ? near : nothing("It has no direction, so nothing is near it."));
  }
  if (state.answers.includes("links")) parts.push(make("h3", {}, "Predicted links"), await links(node));
  if (state.answers.includes("recommendations")) parts.push(make("h3", {}, "Recommended"), await recommended(node));
  if (turn !== state.turn) return;
  where.replaceChildren(...parts);
  at("shown").focus({ preventScroll: true });
  at("around").hidden = !state.answers.includes("edges");
  if (!at("around").hidden) await attempt(() => drawAround(node, of, state.answers, at("graph"), at("reached")), at("reached"));
}

async function links(node) {
  const where = make("div");
  await attempt(async () => {
    const found = (await of("links", { id: node.id, type: node.type, k: 3 })).links;
    if (!found.length) return where.append(nothing("No relation begins at this type of node."));
    const some = (name) => found.some((row) => typeof row[name] === "number");
    const optional = [["probability", "probability"], ["median_rank", "median rank"]].filter(([name]) => some(name));
    where.append(table("Predicted links", [
      ["relation", (row) => words(row.relation)], ["to", nodeButton], ["score", (row) => number(row.score), true],
      ...optional.map(([name, title]) => [title, (row) => number(row[name]), true]),
      ["because of", (row) => why(node, row)],
    ], found, "stacked"));
    if (found.every((row) => row.from === "scores")) {
      where.append(nothing("Scored for this page. A version that is promoted after graphmill links RUN also has probabilities and median ranks."));
    }
  }, where);
  return where;
}

function why(node, link) {
  const { paths } = link;
  const arrow = (step) => (step.forward ? ` —${words(step.relation)}→ ` : ` ←${words(step.relation)}— `);
  const told = (path) => path.steps.reduce((text, step) => text + arrow(step) + (step.name || step.id), node.name || node.id);
  const carried = make("div");
  const button = make("button", { type: "button" }, "What carries the score");
  button.addEventListener("click", async () => {
    button.disabled = true;
    carried.replaceChildren(nothing("Computing…"));
    const asked = { id: node.id, type: node.type, relation: link.relation, target: link.id, target_type: link.type };
    const found = await attempt(() => of("explain", asked), carried);
    if (found) carried.replaceChildren(...explained(found));
    button.disabled = false;
  });
  return make("details", {},
    make("summary", {}, paths.length ? `${paths.length} ${paths.length > 1 ? "paths" : "path"}` : "no short path"),
    make("ul", { class: "paths" }, ...paths.map((path) => make("li", {}, told(path)))), button, carried);
}

// The columns that the data give of an edge, such as "weight 2"; a time is in seconds since 1970.
function knownOf(edge) {
  const date = (seconds) => {
    const when = new Date(seconds * 1000);
    return Number.isNaN(when.getTime()) ? number(seconds) : when.toISOString().replace(/T00:00:00.000Z$/, "").replace(/\.000Z$/, "Z");
  };
  const shown = { weight: number, confidence: number, time: date, evidence: String };
  return Object.entries(shown).filter(([name]) => edge[name] !== undefined).map(([name, show]) => `${name} ${show(edge[name])}`);
}

function explained(found) {
  const list = (lines) => make("ul", { class: "paths" }, ...lines.map((line) => make("li", {}, line)));
  const signed = (value) => `${value > 0 ? "+" : ""}${number(value)}`;
  if (!found.edges.length) {
    return [...(found.because.length ? [nothing("Edges with the largest shares of the score:"), list(found.because)] : [nothing("No edge has a share of the score.")]),
      ...(found.why_not ? [nothing(found.why_not)] : [])];
  }
  return [
    nothing(`Score ${number(found.score)}; ${found.method}:`),
    list(found.edges.map((edge) => `${edge.head} —${words(edge.relation)}— ${edge.tail} (${[signed(edge.share), ...knownOf(edge)].join("; ")})`)),
    ...(found.paths.length ? [nothing("Paths over the strongest edges:"), list(found.paths.map((path) => path.path))] : []),
    ...(Object.keys(found.parts).length ? [nothing("The score is the sum of:"), list(Object.entries(found.parts).map(([name, value]) => `${name} (${signed(value)})`))] : []),
  ];
}

async function recommended(node) {
  const where = make("div");
  await attempt(async () => {
    const found = await of("recommendations", { id: node.id, type: node.type, k: 10 });
    where.append(table("Recommended items", [["rank", (row) => number(row.rank), true], ["item", nodeButton], ["score", (row) => number(row.score), true]], found.recommendations));
  }, where);
  return where;
}

// -- search ----------------------------------------------------------------------------------------------------------

const search = { rows: [], chosen: -1, turn: 0 };

function showFound() {
  const box = at("found");
  box.replaceChildren(...search.rows.map((node, i) => make("li", {
    role: "option", id: `found-${i}`, "aria-selected": String(i === search.chosen), onpointerdown: (event) => { event.preventDefault(); choose(i); },
  }, node.name || node.id, " ", make("small", {}, `${node.type}, ${node.id}`))));
  box.hidden = !search.rows.length;
  at("search").setAttribute("aria-expanded", String(!box.hidden));
  if (search.chosen >= 0) {
    at("search").setAttribute("aria-activedescendant", `found-${search.chosen}`);
    at(`found-${search.chosen}`).scrollIntoView({ block: "nearest" });
  } else at("search").removeAttribute("aria-activedescendant");
}

function choose(i) {
  const node = search.rows[i];
  close();
  if (node) go(node);
}

function close() {
  search.turn += 1;
  Object.assign(search, { rows: [], chosen: -1 });
  showFound();
}

at("search").addEventListener("input", () => {
  search.turn += 1;
  const { turn } = search;
  const text = at("search").value.trim();
  if (!text) return close();
  return setTimeout(() => turn === search.turn && attempt(async () => {
    const found = await of("search", { q: text, k: 12 });
    if (turn !== search.turn) return;
    Object.assign(search, { rows: found.nodes, chosen: found.nodes.length ? 0 : -1 });
    tell(found.nodes.length ? "" : `No node has '${text}' in its name or id.`);
    showFound();
  }), 120);
});
at("search").addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && search.rows.length) {
    search.chosen = (search.chosen + step + search.rows.length) % search.rows.length;
    showFound();
  } else if (event.key === "Enter") choose(search.chosen);
  else if (event.key === "Escape") close();
  else return;
  event.preventDefault();
});
at("search").addEventListener("blur", close);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !["INPUT", "SELECT"].includes(document.activeElement.tagName)) {
    event.preventDefault();
    at("search").focus();
  }
});

// -- the rest --------------------------------------------------------------------------------------------------------

at("model").addEventListener("change", () => go({ model: at("model").value }));
at("version").addEventListener("change", () => go({ version: at("version").value }));
at("token").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", at("token-text").value);
  at("token").hidden = true;
  start();
});
at("heads").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(() => csvOfLinks(at("heads-text").value, Number(at("heads-k").value), of, (text) => { at("heads-done").textContent = text; }));
});
at("all-runs").addEventListener("toggle", () => attempt(async () => {
  if (at("all-runs").open) showRuns(at("runs"), (await ask("/v1/runs")).runs);
}, at("runs")));
window.addEventListener("hashchange", arrive);

function start() {
  return attempt(async () => {
    state.models = (await ask("/v1")).models;
    at("model").replaceChildren(...state.models.map(({ dataset, model }) => make("option", {}, `${dataset}/${model}`)));
    showModels(at("models"), state.models);
    await arrive();
  });
}

start();
