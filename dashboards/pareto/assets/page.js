// What was used last: a table made anew triggers too, without a value.
const used = () => window.dash_clientside.callback_context.triggered.filter((one) => one.value).pop();

// The key in the id of a button that stands for one of many: {"key":…,"type":…}.n_clicks
const keyOf = (one) => JSON.parse(one.prop_id.slice(0, one.prop_id.lastIndexOf("."))).key;

window.dash_clientside = Object.assign({}, window.dash_clientside, {
  edp: {
    // Light or dark: the system's wish until the button was used, then what was chosen.
    theme: function (clicks) {
      const root = document.documentElement;
      if (clicks) {
        root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
        localStorage.setItem("edp-theme", root.dataset.theme);
      }
      const theme = root.dataset.theme;
      return [theme, theme === "dark" ? "Light" : "Dark", matchMedia("(max-width: 560px)").matches];
    },

    sort: function (_clicks, now) {
      const one = used();
      if (!one) return window.dash_clientside.no_update;
      const key = keyOf(one);
      return { key, descending: now.key === key && !now.descending };
    },

    // A point of a chart carries its configuration's key; so does a row's button. Where the panel is below the charts,
    // the page goes there.
    select: function (...inputs) {
      const one = used();
      if (!one) return window.dash_clientside.no_update;
      const key = one.prop_id.endsWith(".clickData") ? one.value.points[0].customdata
        : one.prop_id.startsWith("best.") ? inputs[inputs.length - 1] : keyOf(one);
      if (key && matchMedia("(max-width: 1080px)").matches) {
        document.querySelector(".details").scrollIntoView({ behavior: "smooth" });
      }
      return key || window.dash_clientside.no_update;
    },

    // The address: #at=7@3&with=2&ser=0.3
    read: function (hash) {
      return Object.fromEntries(new URLSearchParams((hash || "").slice(1)));
    },

    write: function (at, beside, limits) {
      if (!at && !beside && !Object.keys(limits || {}).length) return window.dash_clientside.no_update;
      const said = new URLSearchParams();
      if (at) said.set("at", at);
      if (beside) said.set("with", beside);
      for (const [name, most] of Object.entries(limits || {})) {
        said.set(name.endsWith("_seconds") ? "cost" : name, Number(most.toPrecision(6)));
      }
      history.replaceState(history.state, "", "#" + said.toString().replaceAll("%40", "@"));
      return window.dash_clientside.no_update;
    },
  },
});

// Dash makes a table's rows anew when they change. Who was on one by keyboard stays there.
(() => {
  let last = null;
  document.addEventListener("focusin", (event) => { last = event.target.id || null; });
  document.addEventListener("pointerdown", () => { last = null; });
  new MutationObserver(() => {
    if (last && document.activeElement === document.body) {
      document.getElementById(last)?.focus({ preventScroll: true });
    }
  }).observe(document.documentElement, { childList: true, subtree: true });
})();
