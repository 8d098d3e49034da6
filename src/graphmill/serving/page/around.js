// The picture of a node: known edges, predicted links and what explains them. A click adds the edges of a node.
import cytoscape from "/cytoscape.js";
import { make } from "/explorer.js";

const FIRST = 12; // edges of a node that are added at once
const keyOf = ({ id, type }) => `${type}\n${id}`;

export async function drawAround(node, of, answers, where, reached) {
  const css = getComputedStyle(document.body);
  const [text, line, accent, card] = ["--text", "--quiet", "--accent", "--card"].map((name) => css.getPropertyValue(name).trim());
  where.replaceChildren();
  const picture = cytoscape({
    container: where, wheelSensitivity: 0.3, maxZoom: 2,
    style: [
      { selector: "node", style: { label: "data(label)", color: text, "font-size": 11, "background-color": line, width: 16, height: 16, "text-wrap": "ellipsis", "text-max-width": 120, "text-outline-color": card, "text-outline-width": 2 } },
      { selector: "node.centre", style: { "background-color": accent, width: 26, height: 26, "font-weight": "bold" } },
      { selector: "edge", style: { "curve-style": "bezier", "target-arrow-shape": "triangle", "line-color": line, "target-arrow-color": line, width: 1.2, label: "data(label)", "font-size": 8, "min-zoomed-font-size": 8, color: text, "text-rotation": "autorotate", "text-background-color": card, "text-background-opacity": 0.8 } },
      { selector: "edge.predicted", style: { "line-style": "dashed", "line-color": accent, "target-arrow-color": accent } },
      { selector: "edge.explains", style: { width: 3.5 } },
    ],
  });
  const put = (each) => {
    if (!picture.getElementById(keyOf(each)).length) picture.add({ data: { id: keyOf(each), label: each.name || each.id, node: each } });
    return keyOf(each);
  };
  const join = (from, to, relation, kind) => {
    const id = [from, to, relation].join("\n");
    if (picture.getElementById(id).length) picture.getElementById(id).addClass(kind);
    else picture.add({ data: { id, source: from, target: to, label: relation.replaceAll("_", " ") }, classes: kind });
  };
  const opened = new Set();
  const open = async (each) => {
    if (opened.has(keyOf(each))) return;
    opened.add(keyOf(each));
    const here = put(each);
    const { edges } = await of("edges", { id: each.id, type: each.type, k: FIRST });
    if (picture.destroyed()) return; // another node is drawn in its place meanwhile
    for (const edge of edges) {
      const there = put(edge);
      join(edge.forward ? here : there, edge.forward ? there : here, edge.relation, "known");
    }
  };
  const draw = () => {
    if (picture.destroyed()) return;
    picture.layout({ name: "cose", animate: false, fit: true, padding: 20, nodeRepulsion: () => 9000, nodeDimensionsIncludeLabels: true }).run();
    picture.nodes().style("font-size", 11 / Math.min(picture.zoom(), 1)); // as large as the text beside it, however many there are
    reached.replaceChildren(...picture.nodes().filter((each) => !opened.has(each.id())).map((each) => make("button", { type: "button", onclick: () => expand(each.data("node")) }, `+ ${each.data("label")}`)));
  };
  const expand = async (each) => { await open(each); draw(); };
  await open(node);
  if (picture.destroyed()) return;
  picture.getElementById(keyOf(node)).addClass("centre");
  if (answers.includes("links")) {
    const { links } = await of("links", { id: node.id, type: node.type, k: 1, paths: 1 });
    if (picture.destroyed()) return;
    for (const link of links) {
      join(keyOf(node), put(link), link.relation, "predicted");
      let here = node;
      for (const step of link.paths[0]?.steps ?? []) {
        const [from, to] = [put(here), put(step)];
        join(step.forward ? from : to, step.forward ? to : from, step.relation, "explains");
        here = step;
      }
    }
  }
  picture.on("tap", "node", (event) => expand(event.target.data("node")).catch(() => {}));
  draw();
}
