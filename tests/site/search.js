// node search.js WORKER INDEX QUERY…: the addresses that the site's own search (Material's worker) lists, best first.
const fs = require("fs");
const [worker, index, ...queries] = process.argv.slice(2);
let answer;
globalThis.self = globalThis;
globalThis.addEventListener = (_, listener) => (globalThis.ask = (type, data) => listener({ data: { type, data } }));
globalThis.postMessage = (message) => answer && answer(message);
(0, eval)(fs.readFileSync(worker, "utf8"));
const [SETUP, QUERY] = [0, 2];
const request = (type, data) => new Promise((resolve) => ((answer = resolve), globalThis.ask(type, data)));
(async () => {
  await request(SETUP, { ...JSON.parse(fs.readFileSync(index, "utf8")), options: { suggest: false } });
  const found = {};
  for (const query of queries) {
    const { data } = await request(QUERY, query);
    found[query] = data.items.map((page) => page.find((part) => part.score > 0).location);
  }
  console.log(JSON.stringify(found));
})();
