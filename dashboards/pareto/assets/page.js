// Light or dark: the system's wish until the button was used, then what was chosen.
window.dash_clientside = Object.assign({}, window.dash_clientside, {
  edp: {
    theme: function (clicks) {
      const root = document.documentElement;
      if (clicks) {
        root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
        localStorage.setItem("edp-theme", root.dataset.theme);
      }
      const theme = root.dataset.theme;
      return [theme, theme === "dark" ? "Light" : "Dark"];
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
