document.title = "An application, loaded";
