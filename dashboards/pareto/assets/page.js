// Return the control that was used last.
const used = () => window.dash_clientside.callback_context.triggered.filter((one) => one.value).pop();

// The selected configuration and those that it is compared with. Their rings lie in a layer above a chart: a shape of
// Plotly's own would make it draw thousands of points again.
const wanted = { selected: null, pinned: [] };

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const svg = (kind, attributes) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};

// Return a ring at each place of a configuration in a chart that is in view.
function ringsOf(chart, key, tint) {
  const { xaxis, yaxis } = chart._fullLayout;
  return chart.data.flatMap(({ customdata, x, y, visible }) => {
    const i = (visible !== "legendonly" && customdata || []).indexOf(key);
    const [cx, cy] = i < 0 ? [] : [xaxis.d2p(x[i]), yaxis.d2p(y[i])];
    if (!(cx >= 0 && cx <= xaxis._length && cy >= 0 && cy <= yaxis._length)) return [];
    const at = { cx: xaxis._offset + cx, cy: yaxis._offset + cy, r: 13 };
    return [svg("circle", { ...at, fill: "none", stroke: colour(tint), "stroke-width": 3 })];
  });
}

function mark(chart) {
  const top = [...chart.querySelectorAll(".main-svg")].pop();
  const layer = top.querySelector(".rings") || svg("g", { class: "rings", "pointer-events": "none" });
  top.prepend(layer); // below what the pointer shows
  layer.replaceChildren(
    ...wanted.pinned.filter((key) => key !== wanted.selected).flatMap((key) => ringsOf(chart, key, "--muted")),
    ...ringsOf(chart, wanted.selected, "--accent"),
  );
}

// Mark a chart now and whenever Plotly has drawn it.
function attend(name) {
  const chart = document.querySelector(`#${name} .js-plotly-plot`);
  if (!chart?.on || !chart.data) return setTimeout(() => attend(name), 50); // Plotly is not there yet
  if (!chart.edpAttended) {
    chart.edpAttended = true;
    for (const event of ["plotly_afterplot", "plotly_relayouting"]) chart.on(event, () => mark(chart));
  }
  mark(chart);
}

// Mark the row of the selected configuration. The id of its button holds the key.
function markRow() {
  for (const button of document.querySelectorAll("#rows button.row")) {
    const chosen = JSON.parse(button.id).key === wanted.selected;
    button.setAttribute("aria-pressed", chosen);
    button.closest("tr").classList.toggle("chosen", chosen);
  }
}

// Return the element of a component of Dash's, without Dash, which takes a third of a second for a table. All text and
// attributes are set as such, so that none becomes markup.
function built(node) {
  if (node === null || typeof node !== "object") return document.createTextNode(node ?? "");
  const { children, className, id, ...rest } = node.props;
  const element = document.createElement(node.type);
  if (className) element.className = className;
  if (id) element.id = typeof id === "string" ? id : JSON.stringify({ key: id.key, type: id.type });
  for (const [name, value] of Object.entries(rest)) element.setAttribute(name, value);
  element.append(...[children ?? []].flat().map(built));
  return element;
}

const put = (name) => (tree) => {
  document.querySelector(`#${name}`).replaceChildren(...[tree ?? []].flat().map(built));
  return window.dash_clientside.no_update;
};

window.dash_clientside = Object.assign({}, window.dash_clientside, {
  edp: {
    rows: put("rows"),
    details: put("details"),

    mark: function (selected, pinned) {
      Object.assign(wanted, { selected, pinned: pinned || [] });
      markRow();
      for (const name of ["first", "scatter"]) attend(name);
      return window.dash_clientside.no_update;
    },

    sort: function (_pressed, now) {
      const one = used();
      if (!one) return window.dash_clientside.no_update;
      const { key } = one.value;
      return { key, descending: now.key === key && !now.descending };
    },

    // Points of charts and presses of rows hold the key of their configuration. If the panel is below the charts,
    // scroll to it.
    select: function (...inputs) {
      const one = used();
      if (!one) return window.dash_clientside.no_update;
      const key = one.prop_id.endsWith(".clickData") ? one.value.points[0].customdata
        : one.prop_id.startsWith("best.") ? inputs[inputs.length - 1] : one.value.key;
      if (key && matchMedia("(max-width: 1080px)").matches) {
        document.querySelector(".details").scrollIntoView({ behavior: "smooth" });
      }
      return key || window.dash_clientside.no_update;
    },
  },
});

// Take presses in the table from the page, and not from Dash: that drops a press if it is about to draw the table anew.
// `at` makes a second press of the same button another value.
document.addEventListener("click", (event) => {
  const button = event.target.closest?.("#rows button");
  if (!button) return;
  const { type, key } = JSON.parse(button.id);
  window.dash_clientside.set_props(`pressed-${type}`, { data: { key, at: Date.now() } });
});

// Dash draws a table's rows anew when they change. Mark the selected one, and keep the keyboard's focus on the same row.
(() => {
  let last = null;
  document.addEventListener("focusin", (event) => { last = event.target.id || null; });
  document.addEventListener("pointerdown", () => { last = null; });
  new MutationObserver((changes) => {
    if (changes.some((change) => change.target.closest?.("#rows"))) markRow();
    if (last && document.activeElement === document.body) {
      document.getElementById(last)?.focus({ preventScroll: true });
    }
  }).observe(document.documentElement, { attributeFilter: ["id"], childList: true, subtree: true });
})();
