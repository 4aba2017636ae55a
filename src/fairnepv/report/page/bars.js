// Section 2: a table of bars, so that eyes and screen readers have the same.

const COLOURS = 8; // of the style sheet, told apart by everybody

function makeBars() {
  const views = data.views, rows = data.selectors;
  const ends = views.map((view, q) => 1.03 * Math.max(view.reach || 0, ...rows.map((row) => row.lengths[q]), 1e-9));
  const worst = views.find((view) => view.worst);
  byId("served-lead").append("A bar is the ", data.scale, ". Ours serves ", said("strong", worst.name),
    ` worst, at ${worst.score}.`, data.searched && rows.length > 1
      ? " The others were searched for to draw this page, by effort fast: greedy alone." : "");

  const head = el("tr", {}, el("th", { scope: "col" }, "selector"), ...views.map((view) => el("th", { scope: "col" },
    said("span", view.name), view.bound === null ? null : el("span.limit", {}, `bound ${view.bound}`))),
    el("th", { scope: "col" }, "F"), el("th", { scope: "col" }, "leaves behind"));
  const body = rows.map((row, r) => el(r ? "tr" : "tr.ours", {},
    el("th", { scope: "row" }, said("span", row.method), r ? null : el("span.tag", {}, "this choice")),
    ...views.map((view, q) => bar(row, view, q, ends[q])),
    el("td.number", { "data-label": "F" }, row.fair),
    el("td.left", { "data-label": "leaves behind" }, row.behind === null ? "–" : said("span", views[row.behind].name))));
  byId("bars").append(el("caption.unseen", {}, `${data.scale} by selector and view; the bound is what no set reaches in a view alone`),
    el("thead", {}, head), el("tbody", {}, ...body));

  if (views[0].bound !== null) byId("bars-key").append(el("i.dash", { "aria-hidden": "true" }), ` proven bound: no ${count(picked, "item")} reach further in that view `);
  byId("bars-key").append(el("i.box", { "aria-hidden": "true" }), " worst view of a selector");
  for (const row of rows.slice(1)) byId("behind").append(said("li", row.sentence));
}

function bar(row, view, q, end) {
  const fill = el(`span.fill.v${q % COLOURS}`), limit = el("span.bound");
  fill.style.width = `${(100 * row.lengths[q]) / end}%`;
  if (view.reach !== null) limit.style.left = `${(100 * view.reach) / end}%`;
  const beside = row.scores[q] === row.said[q] ? null : el("span.beside", {}, `d ${row.scores[q]}`);
  return el(row.worst[q] ? "td.worst" : "td", { "data-label": view.name },
    el("span.value", {}, row.said[q], beside, row.worst[q] ? el("span.unseen", {}, " (worst view)") : null),
    el("span.track", { "aria-hidden": "true" }, fill, view.reach === null ? null : limit));
}
