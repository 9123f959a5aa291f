# A price, then a table as a data frame, with R: the packages curl and jsonlite (on Debian r-cran-curl, r-cran-jsonlite).
# Wants DODONA_URL and DODONA_KEY; the question is about `dodona sample`'s survey.
library(curl)
library(jsonlite)

send <- function(route, body, name = NULL) {
  handle <- new_handle(postfields = toJSON(body, auto_unbox = TRUE, digits = NA))
  headers <- list(Authorization = paste("Bearer", Sys.getenv("DODONA_KEY")), "Content-Type" = "application/json")
  # Sent again under the same name it is charged once, and answered alike.
  if (!is.null(name)) headers[["Idempotency-Key"]] <- name
  do.call(handle_setheaders, c(list(handle), headers))
  reply <- curl_fetch_memory(paste0(Sys.getenv("DODONA_URL"), "/v1/datasets/survey/", route), handle)
  found <- fromJSON(rawToChar(reply$content))
  if (reply$status_code >= 400) stop(found$detail) # a sentence: what was wrong, and what to write instead
  found
}

asked <- list(
  sql = "SELECT region, COUNT(*) AS n, AVG(income) AS mean FROM survey GROUP BY region",
  effort = list(share = 0.01)
)
print(send("price", asked)$columns[c("column", "margin")])
table <- send("sql", asked, name = paste0("r-", as.integer(Sys.time()), "-", Sys.getpid()))
print(table$records[c("region", "n", "n_margin", "mean", "mean_margin")])
