"""The ResourceManager's page, REST interface and metrics. They only pause, resume and kill apps (`actions`)."""
