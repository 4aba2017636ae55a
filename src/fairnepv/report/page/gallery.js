// Section 1: the picks, to be searched, sorted and filtered.

const PAGE = matchMedia("(max-width: 44rem)").matches ? 30 : 96;

function makeGallery() {
  const list = byId("gallery");
  const search = byId("search"), sort = byId("sort"), group = byId("group"), more = byId("more");
  const cards = new Map();
  let order = [], room = PAGE;

  const orders = [["order", "order of choice"], ["name", data.named_by === "id" ? "id" : "row"]];
  if (data.stands_for) orders.push(["stands", "items it stands for"]);
  for (const view of data.views) orders.push([`gain ${view.name}`, `gain in ${view.name}`]);
  for (const [value, text] of orders) sort.append(el("option", { value }, text));
  if (data.groups.length) {
    byId("group-label").hidden = false;
    group.append(el("option", { value: "" }, "all"));
    data.groups.forEach((name, g) => {
      const many = data.group.slice(0, picked).filter((own) => own === g).length;
      if (many) group.append(el("option", { value: g }, `${name} (${plain.format(many)})`));
    });
  }
  const words = Array.from({ length: picked }, (_, item) =>
    [nameOf(item), textOf(item), groupOf(item)].filter(Boolean).join(" ").toLowerCase());

  function card(item) {
    if (cards.has(item)) return cards.get(item);
    const text = textOf(item), stands = data.stands_for;
    const label = [`Pick ${item + 1}`, calledOf(item), text, groupOf(item), stands ? `stands for ${count(stands[item], "item")}` : null];
    const made = el("li", {}, el("button.card", {
      type: "button", tabindex: "-1", "data-item": item, "aria-label": label.filter(Boolean).join(", "), "aria-pressed": "false",
      onclick: () => choose(item), onpointerenter: () => tell({ over: item }), onpointerleave: () => tell({ over: null }),
    },
    data.pictures ? el("span.picture", {}, pictureOf(item, { alt: "" })) : null,
    el("span.turn", {}, plain.format(item + 1)),
    said("span.name", calledOf(item)),
    text === null ? (data.texts ? el("span.none", {}, "no text") : null) : said("span.text", text),
    groupOf(item) === null ? null : said("span.group", groupOf(item))));
    cards.set(item, made);
    return made;
  }

  function matching() {
    const wanted = search.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const only = group.value === "" ? null : Number(group.value);
    const found = [];
    for (let item = 0; item < picked; item++) {
      if (only !== null && data.group[item] !== only) continue;
      if (wanted.every((word) => words[item].includes(word))) found.push(item);
    }
    return found;
  }

  function sorted(items) {
    const by = sort.value;
    if (by === "name") {
      const compare = new Intl.Collator("en", { numeric: true }).compare;
      return items.sort((a, b) => compare(nameOf(a), nameOf(b)) || a - b);
    }
    const values = by === "stands" ? data.stands_for : by.startsWith("gain ") ? data.gains[by.slice(5)] : null;
    return values ? items.sort((a, b) => values[b] - values[a] || a - b) : items;
  }

  function draw() {
    order = sorted(matching());
    const shown = order.slice(0, room);
    list.replaceChildren(...shown.map(card));
    more.hidden = shown.length === order.length;
    more.textContent = `Show ${count(Math.min(PAGE, order.length - shown.length), "more", "more")}`;
    byId("count").textContent = order.length === picked ? count(picked, "pick") : `${plain.format(order.length)} of ${count(picked, "pick")}`;
    if (!order.length) list.append(el("li.empty", {}, "No pick matches. Try a shorter word, or all groups."));
    const first = shown.includes(state.chosen) ? state.chosen : shown[0];
    for (const item of shown) card(item).firstChild.tabIndex = item === first ? 0 : -1;
    tell({ shown: order.length === picked ? null : new Set(order) });
  }

  // One stop for the tab key; arrows go from card to card.
  list.addEventListener("keydown", (event) => {
    const buttons = [...list.querySelectorAll("button.card")];
    const at = buttons.indexOf(document.activeElement);
    if (at < 0) return;
    const top = buttons[0].offsetTop;
    const columns = Math.max(1, buttons.filter((button) => button.offsetTop === top).length);
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -at, End: buttons.length - 1 - at };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const next = buttons[Math.min(buttons.length - 1, Math.max(0, at + steps[event.key]))];
    buttons[at].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  const again = () => { room = PAGE; draw(); };
  search.addEventListener("input", again);
  sort.addEventListener("change", again);
  group.addEventListener("change", again);
  more.addEventListener("click", () => { room += PAGE; draw(); });
  listeners.push((change) => {
    if (!("chosen" in change) && !("over" in change)) return;
    for (const [item, made] of cards) {
      made.firstChild.setAttribute("aria-pressed", String(item === state.chosen));
      made.firstChild.classList.toggle("over", item === state.over);
    }
  });
  draw();
}
