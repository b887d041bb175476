// Which colours? A classic script, so that a chosen theme is there before the first paint. The toggle is in view/header.js.
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem("convoke.theme");
  } catch {
    // Storage may be switched off; the system's choice stands.
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
