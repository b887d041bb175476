//! Reading one prompt or one resource of a server.

use rmcp::model::{GetPromptRequestParams, JsonObject, ReadResourceRequestParams};
use rmcp::model::{GetPromptResponse, ReadResourceResponse};
use rmcp::service::ServiceError;

use crate::client::Client;
use crate::{Answer, CallError};

impl Client {
    /// Renders the prompt `name`.
    pub(crate) async fn prompt(&self, name: &str, arguments: JsonObject) -> Result<Answer, CallError> {
        let params = GetPromptRequestParams::new(name).with_arguments(arguments);
        match self.bounded(self.peer.get_prompt_once(params)).await? {
            GetPromptResponse::Complete(result) => Ok(Answer::of_prompt(result)),
            _ => Err(self.refused("it asks for more than the prompt's arguments".to_owned())),
        }
    }

    /// Reads the resource at `uri`.
    pub(crate) async fn resource(&self, uri: &str) -> Result<Answer, CallError> {
        let params = ReadResourceRequestParams::new(uri);
        match self.bounded(self.peer.read_resource_once(params)).await? {
            ReadResourceResponse::Complete(result) => Ok(Answer::of_resource(result)),
            _ => Err(self.refused("it asks for more than the resource's address".to_owned())),
        }
    }

    async fn bounded<T>(&self, asked: impl Future<Output = Result<T, ServiceError>>) -> Result<T, CallError> {
        tokio::select! {
            answer = asked => answer.map_err(|error| self.failed(error)),
            () = self.gone.cancelled() => Err(self.gone()),
            () = tokio::time::sleep(self.timeout) => Err(self.late()),
        }
    }
}
