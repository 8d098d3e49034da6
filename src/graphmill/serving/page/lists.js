// The lists: all models, all runs to sort and filter, and the links of many heads as a file.
import { make, number, table } from "/explorer.js";

const MOST_HEADS = 200;
const coloured = (verdict) => make("span", { class: verdict?.word ?? "", title: verdict?.sentence ?? "" }, verdict?.word ?? "");

function age(when) {
  const hours = (Date.now() - Date.parse(when)) / 3.6e6;
  return hours < 1 ? "now" : hours < 48 ? `${Math.round(hours)} h` : `${Math.round(hours / 24)} days`;
}

export function showModels(where, models) {
  where.replaceChildren(table("Models", [
    ["model", (row) => make("a", { href: `#/${encodeURIComponent(row.dataset)}/${encodeURIComponent(row.model)}` }, `${row.dataset}/${row.model}`)],
    ["live version", (row) => row.current || "none"], ["age", (row) => (row.current ? age(row.when) : "")],
    ["verdict", (row) => coloured(row.verdict)], ["metric", (row) => row.metric ?? ""],
    ["validation", (row) => number(row.valid), true], ["test", (row) => number(row.test), true], ["versions", (row) => number(row.versions), true],
  ], models, "stacked"));
}

// "mrr > 0.2", "epochs = 20", or a text that a value has; several are joined by blanks between the conditions.
function condition(text) {
  const parts = text.match(/\S+\s*[<>=]\s*\S+|\S+/g) ?? [];
  return (row) => parts.every((each) => {
    const [, name, sign, wanted] = each.match(/^(\S+?)\s*([<>=])\s*(\S+)$/) ?? [];
    if (!sign) return Object.entries(row).some(([key, value]) => `${key} ${value}`.toLowerCase().includes(each.toLowerCase()));
    return Object.entries(row).filter(([key]) => key === name || key.endsWith(`.${name}`) || key.endsWith(`_${name}`)).some(([, value]) => (
      sign === "=" ? String(value) === wanted : value !== "" && (sign === ">" ? value > Number(wanted) : value < Number(wanted))));
  });
}

export function showRuns(where, runs) {
  if (!runs.length) return where.replaceChildren(make("p", { class: "quiet" }, "There is no finished run beside these versions."));
  const flat = runs.map((run) => ({ model: `${run.dataset}/${run.model}`, run: run.run.split("/").pop(), system: run.system, when: run.when.slice(0, 16).replace("T", " "),
    verdict: run.verdict.word, ...run.metrics, ...run.settings }));
  const names = [...new Set(flat.flatMap(Object.keys))];
  const chosen = names.filter((name, i) => i < 5 || /mrr|ndcg@10|recall@20|\./.test(name));
  let [by, down] = ["when", true];
  const filter = make("input", { type: "search", "aria-label": "Filter runs", placeholder: "test_mrr > 0.2 epochs = 20, or a word" });
  const list = make("div");
  const draw = () => {
    const kept = flat.filter(condition(filter.value));
    const value = (row) => row[by] ?? (typeof kept.find((each) => by in each)?.[by] === "number" ? -Infinity : "");
    kept.sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (down ? -1 : 1));
    const shown = table("Runs", chosen.map((name) => [name, (row) => (name === "verdict" ? coloured({ word: row.verdict }) : number(row[name])), typeof flat.find((each) => name in each)[name] === "number"]), kept);
    shown.querySelectorAll("th").forEach((head, i) => {
      const name = chosen[i];
      if (name === by) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      head.replaceChildren(make("button", { type: "button", class: "node", onclick: () => { down = name === by ? !down : true; by = name; draw(); list.querySelectorAll("th button")[i].focus(); } }, name));
    });
    list.replaceChildren(make("p", { class: "quiet" }, `${kept.length} of ${flat.length} runs`), shown);
  };
  filter.addEventListener("input", draw);
  where.replaceChildren(filter, list);
  return draw();
}

const cell = (value) => (/[",\n\r]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));

export async function csvOfLinks(text, k, of, say) {
  const heads = text.split("\n").map((line) => line.trim()).filter(Boolean);
  if (heads.length > MOST_HEADS) return say(`${heads.length} heads; at most ${MOST_HEADS} at once: graphmill links RUN --heads-file FILE has no bound`);
  const columns = ["relation", "id", "name", "type", "score", "probability", "median_rank"];
  const lines = [["head", ...columns].join(",")];
  const unknown = [];
  for (const [i, head] of heads.entries()) {
    say(`${i + 1} of ${heads.length}…`);
    const answer = await of("links", { id: head, k, paths: 0 }).catch(() => of("links", { name: head, k, paths: 0 }).catch(() => null));
    if (!answer) unknown.push(head);
    else lines.push(...answer.links.map((row) => [head, ...columns.map((name) => row[name] ?? "")].map(cell).join(",")));
  }
  const saved = make("a", { href: URL.createObjectURL(new Blob([`${lines.join("\n")}\n`], { type: "text/csv" })), download: "links.csv" });
  saved.click();
  setTimeout(() => URL.revokeObjectURL(saved.href), 1000);
  return say(`${lines.length - 1} links of ${heads.length - unknown.length} heads${unknown.length ? `; not found, or of several types: ${unknown.join(", ")}` : ""}`);
}
